"""Rows that no other transaction writes until the end of a transaction."""
