"""The shop's tables. Nothing is unique per request: a second order or charge would show up, not be prevented."""

import secrets
from datetime import UTC, datetime
from typing import Any

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import JSON, DateTime, ForeignKey, String, UniqueConstraint
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry, relationship

# MariaDB, by either of SQLAlchemy's names for it, wants lengths, and drops fractions of seconds unless told not to.
_MARIADB = ("mysql", "mariadb")


class Base(DeclarativeBase):
    """The base class of all tables."""

    registry = registry(
        type_annotation_map={
            str: String().with_variant(String(255), *_MARIADB),
            datetime: DateTime().with_variant(mysql.DATETIME(fsp=6), *_MARIADB),
        }
    )


db = SQLAlchemy(model_class=Base)


def now() -> datetime:
    """Give the time in UTC without its zone, which SQLite does not keep."""
    return datetime.now(UTC).replace(tzinfo=None)  # noqa: TID251  # only shown; no claim depends on it


def new_number() -> str:
    """Generate an order number, such as T-48213-90517."""
    digits = f"{secrets.randbelow(10**10):010}"
    return f"T-{digits[:5]}-{digits[5:]}"


class Account(Base):
    """A customer."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    handle: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    email: Mapped[str]


class Product(Base):
    """Something to buy; its picture is drawn from three words."""

    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    description: Mapped[str]
    price_cents: Mapped[int]
    stock: Mapped[int]
    shape: Mapped[str]
    colour: Mapped[str]
    accent: Mapped[str]


class CartLine(Base):
    """A quantity of one product in an account's cart."""

    __tablename__ = "cart_line"
    __table_args__ = (UniqueConstraint("account_id", "product_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    quantity: Mapped[int]
    product: Mapped[Product] = relationship(lazy="joined")

    @property
    def sum_cents(self) -> int:
        """What the line costs."""
        return self.product.price_cents * self.quantity


class Order(Base):
    """An order: placed, then paid or declined, perhaps refunded."""

    __tablename__ = "order"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(index=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    state: Mapped[str] = mapped_column(default="placed")
    card: Mapped[str]
    total_cents: Mapped[int]
    reference: Mapped[str | None] = mapped_column(index=True)
    note: Mapped[str | None]  # the buyer's own words
    picture: Mapped[bytes | None]  # to be printed on the lid of the box
    created_at: Mapped[datetime] = mapped_column(default=now)
    account: Mapped[Account] = relationship(lazy="joined")
    lines: Mapped[list["OrderLine"]] = relationship(order_by="OrderLine.id")
    payments: Mapped[list["Payment"]] = relationship(order_by="Payment.id")
    refunds: Mapped[list["Refund"]] = relationship(order_by="Refund.id")


class OrderLine(Base):
    """A line of the cart as it was ordered: prices may change later."""

    __tablename__ = "order_line"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"), index=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"))
    name: Mapped[str]
    price_cents: Mapped[int]
    quantity: Mapped[int]
    product: Mapped[Product] = relationship()

    @property
    def sum_cents(self) -> int:
        """What the line cost."""
        return self.price_cents * self.quantity


class Review(Base):
    """A customer's review of a product. Nothing in it is unique: a double review would show up."""

    __tablename__ = "review"
    id: Mapped[int] = mapped_column(primary_key=True)
    product_id: Mapped[int] = mapped_column(ForeignKey("product.id"), index=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"))
    stars: Mapped[int]
    text: Mapped[str]
    reference: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(default=now)
    account: Mapped[Account] = relationship(lazy="joined")


class Payment(Base):
    """A charge that the gateway reported."""

    __tablename__ = "payment"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"), index=True)
    charge: Mapped[str]
    amount_cents: Mapped[int]
    at: Mapped[datetime] = mapped_column(default=now)


class ChargeEvent(Base):
    """A payment that was recorded because the gateway's event came before its answer."""

    __tablename__ = "charge_event"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"), index=True)
    charge: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)


class Refund(Base):
    """A refund that a customer asked for; done once the outbox has told the gateway."""

    __tablename__ = "refund"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"), index=True)
    amount_cents: Mapped[int]
    reason: Mapped[str]
    state: Mapped[str] = mapped_column(default="requested")
    gateway_id: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(default=now)


class Job(Base):
    """A job to do after a commit: written in the transaction that causes it, done by the outbox."""

    __tablename__ = "job"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    key: Mapped[str] = mapped_column(default=lambda: secrets.token_hex(16))
    about: Mapped[dict[str, Any]] = mapped_column(JSON)
    tries: Mapped[int] = mapped_column(default=0)


class Letter(Base):
    """A letter in the local mailbox."""

    __tablename__ = "letter"
    id: Mapped[int] = mapped_column(primary_key=True)
    to: Mapped[str]
    subject: Mapped[str]
    body: Mapped[str]
    sent_at: Mapped[datetime] = mapped_column(default=now)


class Attempt(Base):
    """What happened to one attempt at a request, for support. It is kept longer than the extension's record."""

    __tablename__ = "attempt"
    id: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str] = mapped_column(index=True)
    event: Mapped[str] = mapped_column(index=True)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    worker: Mapped[int]
    at: Mapped[datetime] = mapped_column(default=now)


class Switch(Base):
    """A switch of the failure lab: how many of the next requests it acts on; a flag has 1 while it is on."""

    __tablename__ = "switch"
    name: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[int] = mapped_column(default=0)
