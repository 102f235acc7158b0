"""Converted RTL at millions of clocks a second: any block as a shared library, with NumPy arrays around it.

    from oscar_sim.verilator import Model

    model = Model("barrel_decoder")                     # of oscar_hdl.flow.tops.TOPS
    model = Model("tests.tops:adder", bits=12)          # a function of its parameters that returns a block
    model["rst"] = 1                                    # ports by the names they have in the Verilog
    model.clock(2)                                      # two rising edges of clk
    model["rst"] = 0
    model["job_values"] = 96                            # bundles are flat: job.values is job_values
    int(model["job_idle"])                              # outputs are settled whenever they are read
    got = model.run({"a": a, "b": b}, ["total"])        # a value a clock: a[t] is there at the t-th edge,
    got["total"][t]                                     # total as the t-th edge sees it

The function runs in a fresh process with PYTHONHASHSEED=0, and must be importable there (PYTHONPATH); MyHDL's
source has to be on disk. What was converted and compiled is kept in build/verilator, by a digest of all
sources.

Arrays: uint8 for ports of up to 8 bits, uint16 to 16, uint32 to 32, uint64 to 64; wider ports have rows of
uint32, lowest first. Inputs that `run` is not given keep their value. A clock costs two evaluations of
the model, some 10 to 100 ns for a small block.

C++ beside the model (`harness=`) sees the class Vtop and `Model`, defined in model.h, and is called through
`model.library`, with `model.handle` for `Model*`.
"""

from oscar_sim.verilator.build import ToolError
from oscar_sim.verilator.model import Model, Port

__all__ = ["Model", "Port", "ToolError"]
