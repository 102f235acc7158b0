"""A unit's decoder, and the decoder of raw blocks (docs/engine.md, "Decoder", "Raw units")."""
