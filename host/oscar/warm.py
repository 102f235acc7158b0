"""Compiles every kernel ahead of its first use: `python -m oscar.warm`, run once by `make setup`."""

from __future__ import annotations

import numpy as np


def main() -> None:
    """Run small AllReduces with each compiled codec and schedule, which run the time model too."""
    from oscar.coding import crc
    from oscar.config import Config
    from oscar.reducers.cluster import LocalCluster

    crc.crc32(bytes(crc.LEAST))
    random = np.random.default_rng(0)
    gradients = [[random.laplace(size=5000).astype(np.float32)] for _ in range(2)]
    config = Config.model_validate(
        {"nodes": 2, "quantiser": {"error_feedback": True}}
    )  # error feedback has kernels of its own
    for codec, schedule in (
        ("asc", "boomerang"),
        ("asc", "direct"),
        ("asc-paper", "ring"),
        ("atalanta", "ring"),
        ("atalanta-dp", "ring"),
        ("rans0", "ring"),
        ("zstd", "ring"),
    ):
        changes = {"method": codec, "schedule": {"name": schedule}, "plan": {"name": "snake"}}
        cluster = LocalCluster(config.variant(**changes))
        for _ in range(2):
            cluster.allreduce(gradients)


if __name__ == "__main__":
    main()
