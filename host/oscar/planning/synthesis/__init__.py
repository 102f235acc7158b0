"""Schedules made for a network (TACCL): routes by a MILP or a greedy matcher, judged by replay."""
