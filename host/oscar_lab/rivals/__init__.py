"""Models and selectors that only the laboratory compares with: oracles, the tree of options, T3's overlap."""
