"""Codecs that ASC is compared with."""
