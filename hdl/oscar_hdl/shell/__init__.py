"""Boards around the NIC; each needs the extra `board`."""
