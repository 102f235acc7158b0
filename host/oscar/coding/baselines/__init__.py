"""Codecs to compare ASC with."""
