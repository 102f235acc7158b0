"""Tables: built, learnt, counted for, kept in sets."""
