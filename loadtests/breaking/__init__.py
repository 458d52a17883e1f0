"""What is broken on purpose: the plan, and who carries it out."""
