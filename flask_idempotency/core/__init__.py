"""Pure values and rules: no Flask, no drivers, no clock, no randomness."""
