"""Tests of the workshop itself: a tool that was never seen to work proves nothing."""
