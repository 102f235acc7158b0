"""A unit's encoder: turns, lanes, bytes (docs/engine.md, "Encoder")."""
