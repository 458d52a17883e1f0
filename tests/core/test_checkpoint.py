"""Checkpoints: names, results as JSON, points, and the key of an effect, which must never change."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotency.core.checkpoint import (
    MAX_RESULT,
    REQUEST,
    Checkpoint,
    Kind,
    Progress,
    check_name,
    dump_result,
    effect_key,
    load_result,
)
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import IdempotencyError

RECORD = RecordId(bytes(range(32)))
ASKED = Fingerprint(1, bytes(range(15)))

# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "_", "order_placed", "Charge-2", "v1.charge:card", "x" * 100])
def test_a_name_is_given_back(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", [
    pytest.param("", id="empty"),
    pytest.param("x" * 101, id="too long"),
    pytest.param("2nd", id="begins with a digit"),
    pytest.param("-charge", id="begins with a sign"),
    pytest.param("@charge", id="begins like our own"),
    pytest.param(REQUEST, id="our own"),
    pytest.param("charge sent", id="a space, which parts name and progress"),
    pytest.param("charge\n", id="newline at the end"),
    pytest.param("charge\0", id="NUL"),
    pytest.param("größe", id="not ASCII"),
    pytest.param("charge'", id="quote"),
    pytest.param(None, id="None"),
    pytest.param(1, id="a number"),
    pytest.param(b"charge", id="bytes"),
    pytest.param(["charge"], id="a list"),
])  # fmt: skip
def test_what_is_no_name_is_refused_with_what_one_is(name):
    with pytest.raises(IdempotencyError, match="start with a letter") as caught:
        check_name(name)

    assert repr(name) in str(caught.value)


# -- results -----------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(result=documents)
def test_a_result_reads_as_it_was_written(result):
    text = dump_result(result, "phase 'placed'")

    assert load_result(text) == result
    assert dump_result(load_result(text), "phase 'placed'") == text


@given(result=documents)
def test_a_result_is_written_in_characters_that_every_database_keeps(result):
    assert dump_result(result, "phase 'placed'").isascii()
    assert "\0" not in dump_result(result, "phase 'placed'")


def test_nothing_written_is_none_and_so_is_a_written_none():
    assert load_result(None) is None
    assert load_result(dump_result(None, "phase 'placed'")) is None


def test_tuples_and_numbers_as_names_become_what_json_has():
    text = dump_result({"ids": (1, 2), 3: "three"}, "phase 'placed'")

    assert load_result(text) == {"ids": [1, 2], "3": "three"}


def circular():
    items = []
    items.append(items)
    return items


def deep():
    items = []
    for _ in range(100_000):
        items = [items]
    return items


@pytest.mark.parametrize("result", [
    pytest.param(math.nan, id="NaN"),
    pytest.param(math.inf, id="infinity"),
    pytest.param({"total": [1.0, -math.inf]}, id="infinity inside"),
    pytest.param({math.nan: 1}, id="NaN as a name"),
    pytest.param(Decimal("9.99"), id="Decimal"),
    pytest.param(datetime(2026, 1, 1, tzinfo=UTC), id="datetime"),
    pytest.param(b"bytes", id="bytes"),
    pytest.param({1, 2}, id="set"),
    pytest.param(object(), id="object"),
    pytest.param({("a", "b"): 1}, id="tuple as a name"),
    pytest.param(10**5000, id="a number too long to be written"),
    pytest.param(circular(), id="circular"),
    pytest.param(deep(), id="too deep"),
])  # fmt: skip
def test_what_is_not_json_is_refused_in_one_sentence_that_names_the_step(result):
    with pytest.raises(IdempotencyError, match="The result of phase 'placed' cannot be stored as JSON: ") as caught:
        dump_result(result, "phase 'placed'")

    assert "instead of an object, return its id" in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_result_may_be_as_long_as_the_limit_and_no_longer():
    longest = "x" * (MAX_RESULT - len('""'))

    assert len(dump_result(longest, "effect 'charge'")) == MAX_RESULT
    with pytest.raises(IdempotencyError, match=r"effect 'charge' is 65,537 characters .* limit of 65,536"):
        dump_result(longest + "x", "effect 'charge'")


def test_length_is_counted_as_it_is_stored():
    with pytest.raises(IdempotencyError, match="characters of JSON"):
        dump_result("é" * (MAX_RESULT // 6 + 1), "effect 'charge'")  # six characters each


def test_a_result_takes_no_space_that_it_does_not_need():
    assert dump_result({"a": [1, 2], "b": None}, "phase 'placed'") == '{"a":[1,2],"b":null}'


def test_a_damaged_result_is_an_error_and_not_a_guess():
    with pytest.raises(json.JSONDecodeError):
        load_result('{"order":')


# -- points ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "point"), [
    pytest.param(Checkpoint("placed", Kind.PHASE, 1), "placed", id="phase"),
    pytest.param(Checkpoint(REQUEST, Kind.REQUEST, 0), "@request", id="request"),
    pytest.param(Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT), "charge sent", id="sent"),
    pytest.param(Checkpoint("charge", Kind.EFFECT, 1, Progress.DONE), "charge done", id="done"),
    pytest.param(Checkpoint("charge", Kind.EFFECT, 1, Progress.VOID, 2), "charge void 2", id="void"),
    pytest.param(Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT, 2), "charge sent 2", id="sent anew"),
])  # fmt: skip
def test_a_point_is_stored_so_it_must_never_read_otherwise(made, point):
    assert made.point == point


def test_no_two_points_of_a_run_are_alike():
    effects = [
        Checkpoint(name, Kind.EFFECT, 1, state, generation)
        for name, state, generation in product(("charge", "charge2"), Progress, (1, 2, 11))
    ]
    phases = [Checkpoint(name, Kind.PHASE, 1) for name in ("placed", "sent", "done", "charge-sent")]

    points = [each.point for each in (*effects, *phases, Checkpoint(REQUEST, Kind.REQUEST, 0))]

    assert len(set(points)) == len(points)


def test_a_point_says_nothing_of_result_position_or_age():
    plain = Checkpoint("charge", Kind.EFFECT, 1, Progress.DONE)

    assert Checkpoint("charge", Kind.EFFECT, 7, Progress.DONE, result="1").point == plain.point


# -- the key of an effect ----------------------------------------------------------------------------------------------


def test_the_key_of_an_effect_never_changes():
    assert effect_key(RECORD, ASKED, "charge", 1) == "c9b22a77f3905852b5b61960b01ef29b"
    assert effect_key(RECORD, ASKED, "charge", 2) == "0dea8b3286818dce9b1f594fb2b3ad8f"


def test_the_key_of_an_effect_is_a_digest_of_four_things_each_behind_its_length():
    parts = (b"effect", bytes(RECORD), bytes(ASKED), b"charge", b"12")
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)

    assert effect_key(RECORD, ASKED, "charge", 12) == sha256(framed).hexdigest()[:32]


@given(
    first=st.tuples(
        st.binary(min_size=32, max_size=32),
        st.builds(Fingerprint, st.integers(0, 255), st.binary(min_size=15, max_size=15)),
        st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True),
        st.integers(1),
    ),
    second=st.tuples(
        st.binary(min_size=32, max_size=32),
        st.builds(Fingerprint, st.integers(0, 255), st.binary(min_size=15, max_size=15)),
        st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True),
        st.integers(1),
    ),
)
def test_keys_are_the_same_for_the_same_effect_and_for_no_other(first, second):
    keys = [effect_key(RecordId(id_), *others) for id_, *others in (first, second)]

    assert (keys[0] == keys[1]) == (first == second)


def test_a_key_differs_by_record_request_name_and_generation():
    keys = {
        effect_key(record, asked, name, generation)
        for record in (RECORD, RecordId(bytes(32)))
        for asked in (ASKED, Fingerprint(1, bytes(15)), Fingerprint(2, ASKED.digest))
        for name in ("charge", "charge1", "charge11")
        for generation in (1, 11, 111)
    }

    assert len(keys) == 54


def test_a_key_fits_where_keys_are_short_and_plain():
    key = effect_key(RECORD, ASKED, "x" * 100, 1000)

    assert len(key) == 32
    assert key.isalnum()
    assert key.isascii()
