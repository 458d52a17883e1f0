"""The lease guard's protocol as a model: every order of every fault, tried out to the last state."""
