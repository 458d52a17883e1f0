"""Tests of the workshop itself: a tool nobody has seen work proves nothing."""
