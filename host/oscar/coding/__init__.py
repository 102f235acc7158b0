"""Coding for one link: frames, codecs and their registry. `asc` is OSCAR's coder, `index` codes positions."""
