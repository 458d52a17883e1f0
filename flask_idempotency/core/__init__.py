"""Values and rules: no Flask, no driver, no clock, no chance."""
