"""Writes a converted top as a tree of entities, one for each block of the source."""
