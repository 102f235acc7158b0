"""The NIC in MyHDL, one block a file (docs/how-to/nic-on-a-board.md); conversion, synthesis and placement."""
