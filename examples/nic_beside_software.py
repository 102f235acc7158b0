"""One rank on a NIC's converted RTL, three in software: `python examples/nic_beside_software.py`.

Needs Verilator and g++ (`make verilator`), and compiles the NIC's units for a minute the first time. The RTL
is clocked for every frame of rank 0. The other ranks use the compiled coder of the host. All end with the
same mean, bit for bit, which is that of four ranks in software.
"""

import numpy as np

from oscar import Config, LocalCluster

rng = np.random.default_rng(0)
gradients = [[rng.laplace(scale=1e-3, size=40_000).astype(np.float32)] for _ in range(4)]

config = Config(nodes=4, nic=("verilator", None, None, None))  # an entry for each rank; None is software
mixed, software = LocalCluster(config), LocalCluster(config.variant(nic="compiled"))
for call in range(3):
    result, expected = mixed.allreduce(gradients), software.allreduce(gradients)
    assert result.stats.identical  # on all four ranks
    assert np.array_equal(result.mean[0], expected.mean[0])
    clocks = result.stats.clocks
    assert clocks is not None
    frames = clocks[clocks["rank"] == 0]
    print(
        f"call {call}: equal means; {result.stats.bits_per_value:.2f} bits/value; the RTL of rank 0 coded "
        f"{len(frames)} frames in {frames['clocks'].sum():,.0f} clocks"
    )
