"""The driver of oscar_nic: a rank's part of a schedule as commands, and the book of table sets."""
