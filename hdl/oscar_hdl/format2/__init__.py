"""Format 2 of adaptive stepwise coding (docs/format2.md): what the present RTL speaks, in plain integers."""
