"""Whether compression pays, before or while it runs."""
