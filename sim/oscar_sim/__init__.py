"""Test benches and RTL-backed NICs for oscar_hdl: reserved, not written yet."""
