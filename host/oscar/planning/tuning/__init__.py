"""Which gradients are compressed, how, and in which groups (docs/tuning.md)."""
