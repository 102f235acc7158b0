"""What goes over one link: frames, codecs, their registry; `asc` is our own, `baselines` its rivals, `index` for sets."""
