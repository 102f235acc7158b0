"""The laboratory: what makes the evidence behind our figures. It imports the others; nothing imports it.

lab: a rate-limited network of namespaces (`oscar lab`). bench: rates and ratios (`oscar bench`). trials: long
searches for what breaks (`oscar trial`). It comes with a clone, not with the wheel.
"""
