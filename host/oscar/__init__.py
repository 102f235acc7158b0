"""OSCAR: compressed gradient AllReduce with adaptive stepwise coding and compression-aware splitting."""
