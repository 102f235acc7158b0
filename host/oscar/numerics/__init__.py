"""Floats to integers and back, and what is learnt from them: steps, classes, chunk plans, sketches."""
