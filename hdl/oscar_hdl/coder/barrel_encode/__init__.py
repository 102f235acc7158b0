"""The barrel encoder: eight lanes a clock, eight blocks that take turns (docs/engine.md, "Barrel units")."""
