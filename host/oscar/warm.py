"""Compiles every kernel ahead of its first use: `python -m oscar.warm`, run once by `make setup`."""

from __future__ import annotations

import numpy as np


def main() -> None:
    """Run small AllReduces with each compiled codec and gather, which run the time model too."""
    from oscar.coding import crc
    from oscar.config import Config
    from oscar.reducers.cluster import LocalCluster

    crc.crc32(bytes(crc.LEAST))
    random = np.random.default_rng(0)
    gradients = [[random.laplace(size=5000).astype(np.float32)] for _ in range(2)]
    config = Config.model_validate(
        {"nodes": 2, "quantiser": {"error_feedback": True}}
    )  # error feedback has kernels of its own
    for codec, gather in (
        ("asc", "boomerang"),
        ("asc", "forward"),
        ("asc-paper", "forward"),
        ("atalanta", "forward"),
        ("atalanta-dp", "forward"),
        ("rans0", "forward"),
        ("zstd", "forward"),
    ):
        cluster = LocalCluster(config.variant(method=codec, ring={"gather": gather}, plan={"name": "snake"}))
        for _ in range(2):
            cluster.allreduce(gradients)


if __name__ == "__main__":
    main()
