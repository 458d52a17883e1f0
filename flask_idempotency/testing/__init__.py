"""The contracts of stores, as test classes for authors of other stores.

This needs pytest, and nothing else in the package imports it.
"""

from flask_idempotency.testing.counting import CountingContract
from flask_idempotency.testing.counting_transactions import CountingTransactionContract
from flask_idempotency.testing.given import LEASE, MOMENT, RETENTION, LetPass, make_asked
from flask_idempotency.testing.store import StoreContract
from flask_idempotency.testing.transaction import TransactionContract
from flask_idempotency.testing.transaction_waits import KeyedTransactionContract, ToldApart

__all__ = [
    "LEASE",
    "MOMENT",
    "RETENTION",
    "CountingContract",
    "CountingTransactionContract",
    "KeyedTransactionContract",
    "LetPass",
    "StoreContract",
    "ToldApart",
    "TransactionContract",
    "make_asked",
]
