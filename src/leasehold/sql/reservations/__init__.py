"""Things of which there are so many and no more: reserved, confirmed, cancelled, given back."""
