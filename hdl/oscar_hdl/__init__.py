"""The NIC in MyHDL: reserved for the ASC and splitter pipelines, which are not written yet (docs/asc.md)."""
