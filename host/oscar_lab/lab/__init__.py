"""A rate-limited network in this machine, and AllReduces measured on it (docs/lab.md)."""
