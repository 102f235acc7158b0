"""An example board."""
