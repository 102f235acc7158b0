"""Floats to integers and back, and what is learnt from them: steps, position classes, chunk plans, sketches."""
