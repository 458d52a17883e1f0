"""Deliberate faults: the plan, and what carries it out."""
