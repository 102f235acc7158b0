"""Units that decode and add."""
