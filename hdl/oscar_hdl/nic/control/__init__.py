"""Registers, commands and events."""
