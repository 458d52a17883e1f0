"""Phases and effects under the lease guard: a checkout whose card is charged by a gateway in a process of its own."""
