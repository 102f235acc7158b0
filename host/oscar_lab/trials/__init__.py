"""Long searches for what breaks: faults, flipped bits, mutated input, soak, convergence.

Each module has `add_arguments(parser)` and `run(args) -> dict`.
"""
