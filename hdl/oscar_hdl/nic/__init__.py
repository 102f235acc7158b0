"""The NIC around its units: frames, tables of links, commands, memory."""
