"""Test benches and RTL-backed NICs for the blocks of oscar_hdl."""
