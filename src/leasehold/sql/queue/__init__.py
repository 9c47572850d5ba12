"""Jobs in a table of the user's own database."""
