"""The gateway's tables. No key or order is unique in them: a double charge would show up, not be prevented.

The extension prevents it, with its tables in the same database.
"""

import secrets
from datetime import UTC, datetime
from functools import partial

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import DateTime, ForeignKey, String, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """The base class of all tables."""


db = SQLAlchemy(model_class=Base)


def new_id(prefix: str) -> str:
    """Generate an id, such as ch_5f0c2d1e."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Charge(Base):
    """Money taken from a card."""

    __tablename__ = "charges"
    number: Mapped[int] = mapped_column(primary_key=True)  # says which came first; times may be equal
    id: Mapped[str] = mapped_column(String(40), unique=True, default=partial(new_id, "ch"))
    order: Mapped[str] = mapped_column(String(64), index=True)
    amount: Mapped[int]  # in cents
    card: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(255))  # the Idempotency-Key as it was sent
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.current_timestamp())
    refunds: Mapped[list["Refund"]] = relationship(order_by="Refund.number", lazy="selectin", back_populates="charge")

    @property
    def refunded(self) -> int:
        """How much of it was refunded, in cents."""
        return sum(refund.amount for refund in self.refunds)


class Refund(Base):
    """Money paid back."""

    __tablename__ = "refunds"
    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(String(40), unique=True, default=partial(new_id, "re"))
    charge_number: Mapped[int] = mapped_column(ForeignKey("charges.number"), index=True)
    amount: Mapped[int]
    key: Mapped[str] = mapped_column(String(255))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.current_timestamp())
    charge: Mapped[Charge] = relationship(back_populates="refunds")


class Event(Base):
    """What the gateway tells its customer of a charge."""

    __tablename__ = "events"
    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(String(40), unique=True, default=partial(new_id, "evt"))
    charge_number: Mapped[int] = mapped_column(ForeignKey("charges.number"))
    is_delivered: Mapped[bool] = mapped_column(default=False)
    charge: Mapped[Charge] = relationship()


class Knob(Base):
    """The fault that the lab wants, and how many more times. One row, shared by all workers."""

    __tablename__ = "knob"
    id: Mapped[int] = mapped_column(primary_key=True)
    behaviour: Mapped[str] = mapped_column(String(20))
    times: Mapped[int]


class FirstTry(Base):
    """A key that has met its card's fault. A retry with the same key meets none."""

    __tablename__ = "first_try"
    key: Mapped[str] = mapped_column(String(255), primary_key=True)


def in_utc(at: datetime) -> datetime:
    """Add UTC to a time, because SQLite keeps no time zone."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
