"""Codecs: what goes over one link. The registry is oscar.codecs.registry."""
