"""AllReduce as actions: a schedule yields them, an executor drives them, a node performs them."""
