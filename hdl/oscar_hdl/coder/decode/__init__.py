"""A unit's decoder, and the decoder of raw blocks (docs/develop/engine.md, "Decoder", "Raw units")."""
