"""Units that encode."""
