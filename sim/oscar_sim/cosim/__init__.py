"""Co-simulation: converted VHDL on GHDL and converted Verilog on Icarus do what the compiled RTL did.

A scenario drives a block under Verilator, where it is compared with the software; all its ports are noted in
each clock. The benches give the same inputs to the VHDL and to the Verilog and compare every output in every
clock, so that what was shown for the fast model holds for both languages and for tools of event simulation.
"""
