"""Encryption at rest: the contracts hold over every store, nothing readable is stored, keys rotate, and what cannot be
decrypted is never run again nor guessed at."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.decision import Replay, decide
from flask_idempotency.core.record import Settled
from flask_idempotency.core.snapshot import NotKept, Snapshot
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.sealed import Cipher, SealedStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.stores.worlds import SqlWorld

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
SECRET = "4242 4242 4242 4242"
ANSWER = Snapshot(201, (("Content-Type", "application/json"), ("X-Card", SECRET)), f'{{"card": "{SECRET}"}}'.encode())
CHARGED = Checkpoint("charge", Kind.EFFECT, 0, Progress.DONE, 1, f'{{"card": "{SECRET}"}}')


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[SqliteStore]:
    store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
    assert isinstance(store, SqliteStore)
    store.create()
    yield store
    store.close()


def sealed(store, *keys):
    return SealedStore(store, Cipher(keys or (FIRST,)))


def sealed_with_another_key(store):
    return sealed(store, SECOND)


def without_keys(store):
    return SealedStore(store, None)


keyless = pytest.mark.parametrize("other", [sealed_with_another_key, without_keys], ids=lambda each: each.__name__)


def finish(store, asked=None, answer=ANSWER):
    """Run one request with an effect to its end."""
    asked = asked or make_asked()
    claim = store.claim(asked, LEASE)
    claim = store.checkpoint(claim, CHARGED)
    store.complete(claim, answer, RETENTION)
    return asked


def stop_half_way(store, asked=None):
    asked = asked or make_asked()
    store.release(store.checkpoint(store.claim(asked, LEASE), CHARGED))
    return asked


def test_no_part_of_an_answer_or_a_result_can_be_read_in_the_file(plain):
    store = sealed(plain)
    finish(store)
    stop_half_way(store, make_asked(key="another"))

    stored = repr(SqlWorld(plain).dump()).encode() + b"".join(
        path.read_bytes() for path in plain._path.parent.glob("records.db*")
    )

    assert SECRET.encode() not in stored
    assert b"X-Card" not in stored


def test_the_same_answer_is_never_encrypted_alike(plain):
    store = sealed(plain)
    one, two = finish(store, make_asked(key="one")), finish(store, make_asked(key="two"))

    bodies = {plain.find(asked.id).condition.answer.body for asked in (one, two)}

    assert len(bodies) == 2


def test_what_was_stored_before_there_were_keys_is_still_replayed(plain):
    asked, half = finish(plain), stop_half_way(plain, make_asked(key="another"))
    store = sealed(plain)

    assert store.find(asked.id).condition.answer == ANSWER
    assert [made.result for made in store.checkpoints(half.id)] == [CHARGED.result]


def test_an_older_key_still_decrypts_and_the_first_one_encrypts(plain):
    old = finish(sealed(plain, FIRST))
    both = sealed(plain, SECOND, FIRST)
    new = finish(both, make_asked(key="another"))

    assert both.find(old.id).condition.answer == ANSWER
    assert sealed(plain, SECOND).find(new.id).condition.answer == ANSWER


@keyless
@pytest.mark.parametrize("read", ["find", "claim"])
def test_a_missing_key_is_503_and_says_which_setting(plain, caplog, read, other):
    asked = finish(sealed(plain, FIRST))
    store = other(plain)

    with pytest.raises(StoreUnavailable):
        store.find(asked.id) if read == "find" else store.claim(asked, LEASE)

    assert "a key that is not in IDEMPOTENCY_ENCRYPTION_KEYS" in caplog.text
    assert plain.find(asked.id).condition.answer.status == 201


@keyless
def test_a_run_whose_steps_cannot_be_decrypted_is_not_resumed(plain, caplog, other):
    half = stop_half_way(sealed(plain, FIRST))

    with pytest.raises(StoreUnavailable):
        other(plain).checkpoints(half.id)

    assert "the result of 'charge'" in caplog.text


@keyless
def test_a_list_for_people_shows_records_without_their_key(plain, other):
    finish(sealed(plain, FIRST))

    (record,) = other(plain).browse()

    assert record.condition.answer == NotKept(201)


def test_without_keys_everything_is_stored_as_it_was_given(plain):
    asked = finish(without_keys(plain))

    assert plain.find(asked.id).condition.answer == ANSWER
    assert plain.checkpoints(asked.id)[0].result == CHARGED.result


def opened(store, record, body):
    """Decrypt a record whose stored body is another."""
    condition = replace(record.condition, answer=replace(record.condition.answer, body=bytes(body)))
    return store._open(replace(record, condition=condition)).condition.answer


def test_an_answer_that_was_moved_to_another_record_is_not_replayed(plain, caplog):
    store = sealed(plain)
    one, two = (plain.find(finish(store, make_asked(key=key)).id) for key in ("one", "two"))

    assert opened(store, one, two.condition.answer.body) == NotKept(201)
    assert "snapshot_damaged" in caplog.text


@pytest.mark.parametrize("place", [0, 6, 20, -1], ids=["format", "nonce", "text", "tag"])
def test_a_changed_byte_is_noticed(plain, place):
    store = sealed(plain)
    record = plain.find(finish(store).id)
    body = bytearray(record.condition.answer.body)
    body[place] ^= 1

    assert opened(store, record, body) == NotKept(201)


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01" + bytes(10)])
def test_a_body_that_was_cut_is_noticed(plain, body):
    store = sealed(plain)
    record = plain.find(finish(store).id)

    assert opened(store, record, body) == NotKept(201)


def test_a_result_that_was_moved_to_another_step_is_not_used(plain, caplog):
    store = sealed(plain)
    half = stop_half_way(store)
    SqlWorld(plain)._run("UPDATE idempotency_checkpoint SET name = 'refund'")

    with pytest.raises(StoreUnavailable):
        store.checkpoints(half.id)

    assert "checkpoint_damaged" in caplog.text


def test_an_empty_body_and_repeated_headers_come_back_as_they_were(plain):
    store = sealed(plain)
    answer = Snapshot(204, (("Link", "<a>"), ("Link", "<b>")), b"")
    asked = finish(store, answer=answer)

    assert decide(Settled(store.find(asked.id)), asked.fingerprint) == Replay(answer)


def test_an_answer_without_a_body_needs_no_key(plain):
    asked = finish(sealed(plain), answer=NotKept(201, "/orders/1"))

    assert sealed(plain, SECOND).find(asked.id).condition.answer == NotKept(201, "/orders/1")


def test_cryptography_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)

    with pytest.raises(ConfigError, match=r"pip install flask-idempotency\[encryption\]"):
        Cipher((FIRST,))
