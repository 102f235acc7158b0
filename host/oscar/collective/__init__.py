"""AllReduce as actions: a schedule yields them, a node performs them, an executor runs them."""
