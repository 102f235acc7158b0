"""A ring of simulated NICs: whole AllReduces, clock by clock, against the host's."""
