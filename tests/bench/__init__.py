"""What protection costs: ratios from one interleaved run, statements and commits counted by the database itself."""
