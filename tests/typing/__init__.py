"""What a type checker knows of the public names. `make lint` checks these files; nothing runs them."""
