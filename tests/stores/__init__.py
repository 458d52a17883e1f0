"""Tests of the stores: one contract for all of them, and one file for each one's own ways."""
