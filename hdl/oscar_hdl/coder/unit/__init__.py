"""What barrel units of both directions share (docs/develop/engine.md, "Barrel units")."""
