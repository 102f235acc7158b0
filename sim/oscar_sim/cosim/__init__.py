"""Co-simulation of converted blocks with cocotb: the VHDL on GHDL, the Verilog on Icarus."""
