"""MyHDL blocks of the NIC: ASC and splitter pipelines (see the hardware section of the README)."""
