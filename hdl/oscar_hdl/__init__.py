"""The NIC in MyHDL, one block a file (docs/hardware.md); conversion, synthesis and placement."""
