"""What barrel units of both directions share (docs/engine.md, "Barrel units")."""
