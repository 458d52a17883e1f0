"""What the transaction guard promises: claim, work and answer are committed together, or not at all."""
