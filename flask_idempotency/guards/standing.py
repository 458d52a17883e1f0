"""What can become of the claim of a run under the lease guard."""

from enum import Enum, auto


class Standing(Enum):
    """The state of the claim that a run began with."""

    HELD = auto()  # it is ours, and its lease ends with the run
    LEFT = auto()  # it is ours, and its lease is left to expire
    QUARANTINED = auto()  # we have quarantined the record
    LOST = auto()  # another attempt took over
