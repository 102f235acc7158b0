"""The NIC around its engines: frames, tables of links, commands, memory."""
