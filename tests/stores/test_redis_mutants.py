"""Can the proof fail on Redis too? Each mutant changes a line of one script; the tests must see it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.stores.redis_server import digest_of, load_script
from flask_idempotency.testing import StoreContract
from tests.fixtures.redis import RedisServer
from tests.stores import test_redis_lost_answers as lost
from tests.stores.redis_world import RedisWorld, redis_world
from tests.stores.test_mutants import first_breach


class Change(NamedTuple):
    verb: str
    said: str
    says: str


FENCE = "if not is_ours(token) then return 0 end\n"
MUTANTS = {
    "takes over from a live owner": Change("claim", "(held and left > 0)", "false"),
    "runs another request under the key": Change("claim", "get('fingerprint') ~= fingerprint or ", ""),
    "counts an ended lease as a crash": Change("claim", "if held then redis", "if true then redis"),
    "lets a poisonous request crash for ever": Change("claim", "tonumber(takeovers)", "1000"),
    "keeps an answer for ever": Change("claim", "if not state or has_expired() then", "if not state then"),
    "starts an epoch with old checkpoints": Change("claim", "'DEL', record, steps", "'DEL', record"),
    "gives the old token to the new owner": Change("claim", "set('token', token)\nlease", "set('token', 'x')\nlease"),
    "renews for anybody": Change("renew", FENCE, ""),
    "completes for anybody": Change("complete", "not is_ours(token) or ", ""),
    "completes a run that has moved on": Change("complete", " or (get('point') or '') ~= point", ""),
    "refuses to complete again": Change("complete", "if get('state') == 'finished'", "if false"),
    "keeps a finished request": Change("complete", "redis.call('HDEL', steps, request)", ""),
    "counts retention from the claim": Change("complete", "now + retention", "get('created_at') + retention"),
    "releases for anybody": Change("release", "if is_ours(token) then", "if get('state') == 'running' then"),
    "does not end the lease": Change("release", "drop('token')", ""),
    "releases quietly": Change("release", "return get('ended') == call and 1 or 0", "return 1"),
    "writes checkpoints for anybody": Change("checkpoint", "not is_ours(token) or ", ""),
    "does not look where the run is": Change("checkpoint", "(reached ~= previous and reached ~= point)", "false"),
    "forgets when it was first sent": Change("checkpoint", "is_same and before.at or whole(now)", "whole(now)"),
    "takes the time of what was void": Change("checkpoint", " and before.progress ~= 'void'", ""),
    "notes for anybody": Change("note", "is_ours(token) and ", ""),
    "quarantines for anybody": Change("quarantine", FENCE, ""),
    "resolves what is not quarantined": Change("resolve", "if get('state') ~= 'quarantined'", "if false"),
    "says that the owner resolved it": Change("resolve", "drop('token')", ""),
    "voids what is done": Change("reopen", " and step.progress == 'sent'", ""),
    "reopens with the crashes of before": Change("reopen", "'attempt', 1, ", ""),
    "resumes at once": Change("abandoned", "now - age", "now"),
    "reaps without grace": Change("reap", "now - grace", "now"),
    "reaps what is live": Change("reap", "tonumber(get('expires_at')) >= now - grace", "false"),
    "leaves checkpoints behind": Change("reap", "redis.call('DEL', record, steps)", "redis.call('DEL', record)"),
    "deletes what is half-way": Change("reap_abandoned", "if not point or point == request then", "if true then"),
    "deletes what is held": Change("reap_abandoned", "tonumber(get('lease_until')) >= now - age", "false"),
    "deletes more than a batch": Change("reap_abandoned", "if may_delete == '0' then return '' end", ""),
    "frees what is not running": Change("free", "if get('state') ~= 'running' then return 0 end", ""),
    "frees without fencing": Change("free", "drop('token')", ""),
    "does not file a freed record": Change("free", "lease_until(now)", ""),
    "keeps the body of what is forgotten": Change("forget", "drop('body')", ""),
    "keeps the results of what is forgotten": Change("forget", "step.at, '')", "step.at, step.result)"),
    "says again that it has forgotten": Change("forget", "if is_new", "if true"),
    "forgets the first reason": Change("reopen", "known and known .. '; ' .. reason or reason", "reason"),
    "does not file a released record": Change("release", "redis.call('ZADD', running, whole(instant), id)", ""),
}
# One caller that hears every answer cannot tell.
SEEN_WHEN_ANSWERS_ARE_LOST = {
    "does not know its own claim": (
        Change("claim", "if held == token then", "if false then"),
        lost.test_a_claim_whose_answer_was_lost_is_ours,
    ),
    "does not know its own quarantine": (
        Change("claim", "get('ended') == token and 1 or 0", "0"),
        lost.test_a_quarantine_by_a_claim_whose_answer_was_lost_is_told_of,
    ),
    "does not know its own release": (
        Change("release", "return get('ended') == call and 1 or 0", "return 0"),
        lost.test_a_release_whose_answer_was_lost_is_no_lost_claim,
    ),
    "does not know its own resolution": (
        Change("resolve", "return get('decided') == call and 1 or 0", "return 0"),
        partial(lost.decide_on_a_quarantined_record, decide="resolve"),
    ),
    "does not know its own freeing": (
        Change("free", "if get('decided') == call then return 1 end", ""),
        lost.test_a_lease_that_was_ended_though_that_was_not_heard_is_ended_once,
    ),
    "does not know its own reopening": (
        Change("reopen", "return get('decided') == call and 1 or 0", "return 0"),
        partial(lost.decide_on_a_quarantined_record, decide="reopen"),
    ),
}


@pytest.fixture
def world(change: Change, redis_server: RedisServer) -> Iterator[RedisWorld]:
    with redis_world(redis_server) as world:
        text, _ = load_script(change.verb)
        assert change.said in text, f"the mutant changes nothing: {change.verb}.lua does not say {change.said!r}"
        mutant = text.replace(change.said, change.says)
        world.store._server._script = lambda verb: (
            (mutant, digest_of(mutant)) if verb == change.verb else load_script(verb)
        )
        yield world


def each(mutants: dict[str, Change]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("change", list(mutants.values()), ids=list(mutants))


@each({"changes nothing": Change("claim", "#!lua", "#!lua")})
def test_a_mutant_without_a_change_breaks_no_promise(world: RedisWorld):
    assert first_breach(world, StoreContract) is None


@each(MUTANTS)
def test_the_contract_names_the_promise_that_a_mutant_breaks(world: RedisWorld):
    assert first_breach(world, StoreContract)


@pytest.mark.parametrize(
    ("change", "test"), list(SEEN_WHEN_ANSWERS_ARE_LOST.values()), ids=list(SEEN_WHEN_ANSWERS_ARE_LOST)
)
def test_a_lost_answer_shows_what_a_mutant_gets_wrong(world: RedisWorld, test: Callable[[RedisWorld], None]):
    with pytest.raises((AssertionError, IdempotencyError)):
        test(world)
