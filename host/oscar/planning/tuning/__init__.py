"""Which gradients are compressed, how, and in which groups (docs/how-to/tune.md)."""
