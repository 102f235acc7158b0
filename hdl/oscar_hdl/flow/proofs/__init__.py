"""Proofs of blocks' rules."""
