"""What comes with converted tops: file lists, a test bench, templates, constraints, a FuseSoC core."""
