"""Floats to integers and back, and what is learnt on the way: steps, classes, chunk plans, sketches."""
