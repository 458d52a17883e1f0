"""Mistakes of similar libraries, one test each: its name is the promise. Other folders test the same at more length."""
