"""Blocks as they are converted for proofs: each alone, small, with flat ports."""
