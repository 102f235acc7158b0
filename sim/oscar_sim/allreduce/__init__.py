"""Whole AllReduces by simulated NICs, clock by clock, against the host's."""
