"""A rate-limited network in this machine, and AllReduces measured on it (docs/how-to/lab.md)."""
