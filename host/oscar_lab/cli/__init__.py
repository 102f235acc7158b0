"""The laboratory's commands, which are entry points of the group oscar.commands."""
