"""How much one caller may have stored: a limit on its live records, and on the bytes of their answers."""

from dataclasses import dataclass

from flask_idempotency.errors import QuotaExceeded

RETRY_AFTER = 60  # seconds: a record that expires makes room, which may take hours; no client should sleep through that


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that a scope may have; None: any number."""

    records: int | None = None
    bytes: int | None = None

    def check(self, records: int, size: int) -> None:
        """Raise QuotaExceeded if a scope with so many live records, of so many bytes, may not have another."""
        has_too_many = self.records is not None and records >= self.records
        if has_too_many or (self.bytes is not None and size >= self.bytes):
            raise QuotaExceeded(retry_after=RETRY_AFTER)
