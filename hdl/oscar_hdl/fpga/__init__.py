"""Area and clock rate of converted blocks: synthesis, register packing, placement, report."""
