"""The commands that train and compare, which are entry points of the group oscar.commands."""
