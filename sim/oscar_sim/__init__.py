"""Simulation of oscar_hdl: benches, lanes, RTL-backed NICs for the host, a ring of NICs, co-simulation."""
