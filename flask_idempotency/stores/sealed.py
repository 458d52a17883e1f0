"""A store that never sees what was answered: answers, results and stored requests are encrypted before it writes them.

Put around any store. Without IDEMPOTENCY_ENCRYPTION_KEYS it encrypts nothing, and only refuses what was encrypted by a
process that has keys. What identifies a record (id, scope, method, path, fingerprint) and how it ended (status, the
Location of an answer whose body was not kept) is never encrypted.
"""

import json
import logging
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, cast

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.framing import frame
from flask_idempotency.core.record import Asked, Busy, Claim, Finished, Record, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import SEALED, Answer, Damaged, NotKept, Snapshot
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.contract import Store, StoreUndecided, TransactionalStore

_FORMAT = b"\x01"
_KEY_ID_BYTES, _NONCE_BYTES = 4, 12
_MARK = ((SEALED, "1"),)  # the only header of a sealed answer
_TEXT = "sealed:"  # no JSON begins like this
_RETRY_AFTER = 5  # seconds: somebody must add the key

log = logging.getLogger("flask_idempotency")


class KeyMissing(Exception):
    """What was read is encrypted with a key that this process does not have."""


class Cipher:
    """AES-GCM: encrypts with the first key, and decrypts with whichever was used. Safe to use from any thread."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError:
            raise ConfigError(
                "IDEMPOTENCY_ENCRYPTION_KEYS: cryptography is not installed; run: pip install"
                " flask-idempotency[encryption]"
            ) from None
        self._not_authentic = InvalidTag
        self._keys = {sha256(b"key id" + key).digest()[:_KEY_ID_BYTES]: AESGCM(key) for key in keys}
        self._first = next(iter(self._keys))

    def encrypt(self, plain: bytes, about: bytes) -> bytes:
        """Encrypt, and bind the result to what it is *about*."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _FORMAT + self._first + nonce + self._keys[self._first].encrypt(nonce, plain, about)

    def decrypt(self, sealed: bytes, about: bytes) -> bytes:
        """Decrypt. Raises KeyMissing, or Damaged unless this was encrypted with that key about the same."""
        key_id, rest = sealed[1 : 1 + _KEY_ID_BYTES], sealed[1 + _KEY_ID_BYTES :]
        if sealed[:1] != _FORMAT or len(rest) < _NONCE_BYTES:
            raise Damaged
        if key_id not in self._keys:
            raise KeyMissing
        try:
            plain: bytes = self._keys[key_id].decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], about)
        except self._not_authentic:
            raise Damaged from None
        return plain


class SealedStore:
    """Any store, with encryption in front of it. What is not about answers or checkpoints is the store's own."""

    def __init__(self, store: Store, cipher: Cipher | None, on_forget: Callable[[], object] = lambda: None) -> None:
        """Without a *cipher*, nothing is encrypted, and what is cannot be read.

        *on_forget* is called when answers were blanked: nobody may have a copy of them in memory.
        """
        self.inner, self._cipher, self.on_forget = store, cipher, on_forget
        self._joined = cast(TransactionalStore, store)  # only asked for what the transaction guard needs
        # Since Python 3.12, isinstance() does not ask __getattr__ whether this is a TransactionalStore.
        for name in dir(TransactionalStore):
            if not (name.startswith("_") or hasattr(type(self), name)) and hasattr(store, name):
                setattr(self, name, partial(_pass_on, store, name))
        if isinstance(store, TransactionalStore):
            self.drivers = store.drivers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    # -- records and leases ------------------------------------------------------------------------------------------

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Claim; a stored request is encrypted."""
        found = self.inner.claim(asked, lease, None if first is None else self._seal_step(asked.id, first))
        return self._open_found(found)

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record with an encrypted answer."""
        self.inner.complete(claim, self._seal(claim.id, answer), retention)

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an encrypted answer."""
        return self.inner.resolve(record, self._seal(record, answer), retention, remark)

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record; proofs are encrypted, as results are."""
        sealed = [(name, self._seal_text(record, name, proof)) for name, proof in refuted]
        return self.inner.reopen(record, remark, sealed)

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer of a finished record, in the store and in the memory of this process."""
        try:
            return self.inner.forget(record, remark)
        finally:
            self.on_forget()

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Blank the answers of a caller, in the store and in the memory of this process."""
        try:
            return self.inner.forget_scope(scope, remark)
        finally:
            self.on_forget()

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come, with an encrypted result."""
        return self.inner.checkpoint(claim, self._seal_step(claim.id, made))

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints. Raises StoreUnavailable if one cannot be decrypted: nothing may be run without it."""
        return [self._open_step(record, made) for made in self.inner.checkpoints(record)]

    def steps(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints for a caller that runs nothing: a result that cannot be decrypted is None."""
        found = []
        for made in self.inner.checkpoints(record):
            try:
                found.append(self._open_step(record, made))
            except StoreUnavailable:
                found.append(replace(made, result=None))
        return found

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read abandoned records, which have no answer yet."""
        return self.inner.abandoned(age, limit)

    def find(self, record: RecordId) -> Record | None:
        """Read one record."""
        found = self.inner.find(record)
        return None if found is None else self._open(found)

    def browse(self, **wanted: Any) -> list[Record]:
        """Read records for a person; an answer without its key counts as not kept, so that the list can be read."""
        return [self._open(record, is_for_people=True) for record in self.inner.browse(**wanted)]

    # -- transactions of the app's own -------------------------------------------------------------------------------

    def recall(self, record: RecordId) -> Record | None:
        """Read a record that this process has seen before."""
        found = self._joined.recall(record)
        return None if found is None else self._open(found)

    def enter(self, connection: Any, asked: Asked, **circumstances: Any) -> Claim | Busy | Settled:
        """Begin a transaction with the right to run, or say what stands in the way."""
        return self._open_found(self._joined.enter(connection, asked, **circumstances))

    def finish(
        self, connection: Any, claim: Claim, asked: Asked, answer: Answer, retention: timedelta, *, undo: bool = False
    ) -> None:
        """Add the finished record with an encrypted answer, and commit."""
        self._joined.finish(connection, claim, asked, self._seal(claim.id, answer), retention, undo=undo)

    def fence(
        self,
        connection: Any,
        claim: Claim,
        made: Checkpoint,
        *,
        answered: Checkpoint | None = None,
        **circumstances: Any,
    ) -> None:
        """Begin the transaction of a phase; the result of the effect before it is encrypted."""
        sealed = None if answered is None else self._seal_step(claim.id, answered)
        self._joined.fence(connection, claim, self._seal_step(claim.id, made), answered=sealed, **circumstances)

    def commit_phase(self, connection: Any, claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Add the checkpoint of a phase with an encrypted result, and commit."""
        self._joined.commit_phase(connection, claim, self._seal_step(claim.id, made), undo=undo)

    def look_again(self, asked: Asked) -> Record | None:
        """Wait for a transaction whose outcome is in doubt, and read the record it left."""
        found = self._joined.look_again(asked)
        return None if found is None else self._open(found)

    # -- what is encrypted -------------------------------------------------------------------------------------------

    def _seal(self, record: RecordId, answer: Answer) -> Answer:
        if self._cipher is None or isinstance(answer, NotKept):
            return answer
        plain = frame(json.dumps(answer.headers).encode(), answer.body)
        return Snapshot(answer.status, _MARK, self._cipher.encrypt(plain, _about(record, str(answer.status))))

    def _open_found(self, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
        return replace(found, record=self._open(found.record)) if isinstance(found, Settled) else found

    def _open(self, record: Record, *, is_for_people: bool = False) -> Record:
        """Decrypt the answer of a record. Raises StoreUnavailable if its key is missing."""
        match record.condition:
            case Finished(answer=Snapshot(status=status, headers=headers, body=body)) if headers == _MARK:
                pass
            case _:
                return record  # it has no answer, or one from before there were keys
        id_ = record.asked.id
        answer: Answer
        try:
            plain = self._decrypt(body, _about(id_, str(status)))
            size = int.from_bytes(plain[:8], "big")
            pairs = json.loads(plain[8 : 8 + size])
            answer = Snapshot(status, tuple((name, value) for name, value in pairs), plain[16 + size :])
        except Damaged:
            log.error("snapshot_damaged: the stored answer of %s is not what was stored", reference_of(id_))
            answer = NotKept(status)
        except KeyMissing:
            if not is_for_people:
                raise _unreadable(id_, "the stored answer") from None
            answer = NotKept(status)
        return replace(record, condition=replace(record.condition, answer=answer))

    def _seal_step(self, record: RecordId, made: Checkpoint) -> Checkpoint:
        if made.result is None:
            return made
        return replace(made, result=self._seal_text(record, made.name, made.result))

    def _seal_text(self, record: RecordId, name: str, text: str) -> str:
        if self._cipher is None:
            return text
        return _TEXT + urlsafe_b64encode(self._cipher.encrypt(text.encode(), _about(record, name))).decode()

    def _open_step(self, record: RecordId, made: Checkpoint) -> Checkpoint:
        if made.result is None or not made.result.startswith(_TEXT):
            return made
        try:
            sealed = urlsafe_b64decode(made.result.removeprefix(_TEXT))
            return replace(made, result=self._decrypt(sealed, _about(record, made.name)).decode())
        except KeyMissing:
            raise _unreadable(record, f"the result of {made.name!r}") from None
        except ValueError:  # of which Damaged is one
            log.critical(
                "checkpoint_damaged: the result of %r of %s is not what was stored, so it is not resumed",
                made.name,
                reference_of(record),
            )
            raise StoreUndecided(retry_after=_RETRY_AFTER) from None

    def _decrypt(self, sealed: bytes, about: bytes) -> bytes:
        if self._cipher is None:
            raise KeyMissing
        return self._cipher.decrypt(sealed, about)


def _pass_on(store: Store, name: str, /, *args: Any, **options: Any) -> Any:
    return getattr(store, name)(*args, **options)


def _about(record: RecordId, what: str) -> bytes:
    return frame(record, what.encode())


def _unreadable(record: RecordId, what: str) -> StoreUnavailable:
    log.error(
        "store_unavailable: %s of %s is encrypted with a key that is not in IDEMPOTENCY_ENCRYPTION_KEYS; add the key,"
        " and remove it when the longest retention has passed since its last use",
        what,
        reference_of(record),
    )
    return StoreUndecided(retry_after=_RETRY_AFTER)
