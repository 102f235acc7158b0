"""AllReduce: the schedule, the nodes that perform it, and the in-process cluster."""
