"""OSCAR inside other frameworks; each is an extra, imported here alone."""
