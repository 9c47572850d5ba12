"""A row that is written once, however many try."""
