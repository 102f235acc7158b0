"""The converted Verilog of a lane as a shared library: RTL at millions of clocks a second."""
