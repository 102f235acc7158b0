"""The coder of format 4 in hardware: engine.md says how its blocks talk, asc.md what they code."""
