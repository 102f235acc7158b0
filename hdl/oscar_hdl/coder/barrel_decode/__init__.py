"""The barrel decoder: eight lanes a clock, eight blocks that take turns (docs/engine.md, "Barrel units")."""
