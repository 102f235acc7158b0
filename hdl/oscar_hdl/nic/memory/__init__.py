"""Rows of values in banks, what loads and reads them, and what plans from them."""
