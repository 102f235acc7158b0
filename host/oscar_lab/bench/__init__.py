"""Measurements behind the figures: each module has `add_arguments(parser)` and `run(args) -> dict`."""
