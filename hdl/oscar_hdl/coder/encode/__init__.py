"""A unit's encoder: turns, lanes, bytes (docs/develop/engine.md, "Encoder")."""
