"""Rows that nobody else writes until the end of a transaction."""
