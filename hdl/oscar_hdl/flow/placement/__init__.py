"""Area and clock rate of blocks on FPGAs."""
