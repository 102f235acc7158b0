"""Coders that ASC is compared with: entry points of the group oscar.codecs, a function each."""
