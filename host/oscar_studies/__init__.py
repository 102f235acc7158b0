"""What compares methods on trainings: workloads, recorded traces, studies, and methods of peers.

Commands and methods are entry points of the groups oscar.commands and oscar.methods. Nothing in oscar imports
this package, so whoever reads the runtime need not read it.
"""
