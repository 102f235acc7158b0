"""What goes over one link: frames, codecs, registry; `asc` is ours, `baselines` rivals, `index` for sets."""
