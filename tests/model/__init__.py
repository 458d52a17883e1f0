"""The lease guard's protocol as a model: every fault in every order, up to the last state."""
