"""What goes over the wire, row by row."""
