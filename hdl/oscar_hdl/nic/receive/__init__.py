"""From a frame to blocks of decoders."""
