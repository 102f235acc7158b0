"""AXI streams: bundles of ports, and blocks that know nothing of what they carry."""
