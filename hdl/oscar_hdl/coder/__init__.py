"""The coder of format 4 in hardware: docs/engine.md says how its blocks talk, docs/asc.md what they code."""
