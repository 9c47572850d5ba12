"""Tables and rows of the user's own, as its framework names them."""
