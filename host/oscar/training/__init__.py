"""Train to the end with a compressed AllReduce: the loop, checkpoints, the time of an iteration, figures."""
