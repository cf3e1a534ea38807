"""Latest wins on Redis: the Lua script agrees with the rule in Python, and the kit catches every wrong line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from onceward.protocol.latest import EventDelivery, LatestDecision
from onceward.protocol.ordering import CONTENT_BYTES
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.memory.store import MemoryStore
from onceward.stores.redis import RedisStore
from onceward.testing import FakeClock
from onceward.testing.conformance.harness import DAY, HOUR, id_of
from onceward.testing.conformance.latest import ENTITIES, RETENTION, Deliverer
from onceward.testing.conformance.latest_histories import batches, random_events, shuffled_with_repeats
from tests.conformance.on_redis import OnRedis, prefix
from tests.conformance.test_redis_broken import Bug, WithBug
from tests.servers.language import backwards
from tests.servers.redis import RedisServer, shared

IS_NEWER = "local is_newer = not before or is_greater(order, before)"
DUPLICATE = "a_known_message_is_a_duplicate_or_a_mismatch"
PUBLISHED_AGAIN = "a_republished_event_changes_nothing_whatever_its_transport_says"
OTHER_EVENT = "a_known_event_with_other_content_is_a_mismatch"
ANY_ORDER = "any_order_and_repetition_of_a_history_ends_in_the_same_state"


def latest(right: str, wrong: str, caught_by: str) -> Bug:
    return Bug("latest", right, wrong, caught_by)


BUGS = {
    "compares the timestamp only": latest(
        IS_NEWER, "local is_newer = not before or is_greater(sub(order, 1, 11), sub(before, 1, 11))", ANY_ORDER,
    ),
    "compares the timestamp only, not the other parts": latest(
        IS_NEWER, "local is_newer = not before or is_greater(sub(order, 1, 11), sub(before, 1, 11))",
        "parts_decide_in_their_order_and_a_missing_one_is_lowest",
    ),
    "the last arrival wins": latest(
        IS_NEWER, "local is_newer = true", "a_newer_event_is_applied_and_an_older_one_is_stale",
    ),
    "the first arrival wins a tie": latest(
        IS_NEWER, "local is_newer = not before or is_greater(sub(order, 1, -17), sub(before, 1, -17))",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "the last arrival wins a tie": latest(
        IS_NEWER, "local is_newer = not before or not is_greater(sub(before, 1, -17), sub(order, 1, -17))",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "an order ends at its first NUL": latest(
        "if x ~= y then return x > y end", "if x + y == 0 then return false end\n    if x ~= y then return x > y end",
        "orders_are_compared_byte_by_byte",
    ),
    "bytes have signs": latest(
        "if x ~= y then return x > y end", "if x ~= y then return (x + 128) % 256 > (y + 128) % 256 end",
        "orders_are_compared_byte_by_byte",
    ),
    "the longer order is the newer": latest(
        "for i = 1, math.min(#a, #b) do", "if #a ~= #b then return #a > #b end\n  for i = 1, #a do",
        "orders_are_compared_byte_by_byte",
    ),
    "a republished event changes the state": latest(
        "if has_message == 1 then put(message, mark, MARKS_END) end",
        "if known and is_greater(order, before) then write_state(entity, state, order, more) end\n"
        "  if has_message == 1 then put(message, mark, MARKS_END) end",
        PUBLISHED_AGAIN,
    ),
    "an event may change its content": latest(
        "if known and not same_content(known, content) then return EVENT_MISMATCH end", "", OTHER_EVENT,
    ),
    "the message of a mismatch is remembered": latest(
        "if known and not same_content(known, content) then return EVENT_MISMATCH end",
        "if known and not same_content(known, content) then\n"
        "    put(message, bytes(now) .. bytes(MARKS_END) .. content, MARKS_END)\n    return EVENT_MISMATCH\n  end",
        OTHER_EVENT,
    ),
    "a delete leaves no tombstone": latest(
        "local ends = not exists and DELETED_END or nil",
        "if not exists then return redis.call('DEL', key) end\n  local ends",
        "older_events_do_not_restore_a_deleted_entity",
    ),
    "tombstones never expire": latest(
        "if expires_at > 0 and expires_at <= now then return nil, '' end", "",
        "the_tombstone_of_a_deleted_entity_expires",
    ),
    "a restored entity expires": latest(
        "bytes(ends or 0)", "bytes(DELETED_END)",
        "the_tombstone_of_a_deleted_entity_expires",
    ),
    "marks never expire": latest(
        "if s and number(sub(s, 9, 16)) > now then", "if s then", "marks_expire_and_are_deleted_in_batches",
    ),
    "a stale event sets no mark": latest(
        "if has_message == 1 then put", "if has_message == 1 and answer ~= STALE then put",
        "a_stale_event_marks_its_message_as_known",
    ),
    "messages set no mark": latest(
        "if has_message == 1 then put", "if false then put", DUPLICATE,
    ),
    "other content is a duplicate": latest(
        "if seen then return same_content(seen, content) and DUPLICATE_MESSAGE or MISMATCH end",
        "if seen then return DUPLICATE_MESSAGE end", DUPLICATE,
    ),
    "events are not known": latest("has_event == 1 and read_mark(event)", "nil", PUBLISHED_AGAIN),
    "a republished event sets no mark for its message": latest(
        "if has_message == 1 then put", "if has_message == 1 and not known then put", PUBLISHED_AGAIN,
    ),
    "a republished event counts as applied": latest(
        "local answer = DUPLICATE_EVENT", "local answer = DUPLICATE_EVENT + APPLIES", PUBLISHED_AGAIN,
    ),
    "a repeated event is stale": latest(
        "if order == before then return DUPLICATE_MESSAGE end", "if order == before then return STALE end",
        "events_without_an_id_are_identified_by_their_order",
    ),
    "the future is applied": latest(
        "if now < not_before then return EVENT_PARKED end", "",
        "a_future_event_is_parked_and_stores_nothing",
    ),
    "a parked event is marked as known": latest(
        "if now < not_before then return EVENT_PARKED end",
        "if now < not_before then\n    put(message, bytes(now) .. bytes(MARKS_END) .. content)\n"
        "    return EVENT_PARKED\n  end",
        "a_future_event_is_parked_and_stores_nothing",
    ),
    "a conflict is not reported": latest(
        "local conflict = sub(order, 1, -CONTENT - 1)", "local conflict = false and sub(order, 1, -CONTENT - 1)",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "nothing is stored": latest(
        "if is_newer then write_state(entity, state, order, more) end", "",
        "a_newer_event_is_applied_and_an_older_one_is_stale",
    ),
}  # fmt: skip


@pytest.mark.mission("E2", "E3", "E4", "E6", "E7")
@pytest.mark.parametrize("what", BUGS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught(BUGS[what], tmp_path, monkeypatch)


def caught(bug: Bug, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = WithBug(bug)
    monkeypatch.setattr("onceward.stores.redis.calls.script", kit.script)
    with pytest.raises(AssertionError) as error:
        getattr(kit, f"test_{bug.caught_by}")("blocking", directory)
    assert str(error.value), "a check must say what is wrong"


# ── languages ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def foreign(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server on which Lua sorts z before a. Child processes of a test find it, too."""
    with monkeypatch.context() as patch:
        for name, value in backwards(tmp_path_factory.mktemp("language")).items():
            patch.setenv(name, value)
        server = RedisServer().begin()
    monkeypatch.setenv("ONCEWARD_TEST_VALKEY", server.url())
    yield server
    server.end()


@pytest.mark.mission("E6")
@pytest.mark.parametrize("check", ["orders_are_compared_byte_by_byte", ANY_ORDER])
def test_the_language_of_a_server_does_not_matter(
    check: str, foreign: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sound").mkdir()
    getattr(OnRedis(), f"test_{check}")("blocking", tmp_path / "sound")
    as_text = latest("for i = 1, math.min(#a, #b) do", "if true then return a > b end\n  for i = 1, 0 do", check)
    caught(as_text, tmp_path, monkeypatch)


# ── the rule in Lua and the rule in Python ──────────────────────────────────────────────────────────────────────────


def difficult_history(dice: Random, clock: FakeClock, size: int) -> list[EventDelivery]:
    """Return a history with everything that a store may get: also other content under known ids, and future events."""
    given = random_events(dice, size)
    for _ in range(size // 2):
        one, other = dice.sample(given, 2)
        other_encoder = replace(one, order=one.order[:-CONTENT_BYTES] + b"\2" + one.order[1 - CONTENT_BYTES :])
        given += [
            replace(one, message=other.message, event=one.event),
            replace(one, event=other.event, order=other.order),
            replace(one, message=b"", event=b"one event"),
            replace(one, not_before=clock.now() + dice.choice((-DAY, HOUR, 8 * DAY, 2**60))),
            replace(one, not_before=-(2**50)),
            other_encoder,
        ]
    return [replace(one, id=id_of(one.entity)) for one in given]


@pytest.mark.mission("E3", "E6")
@pytest.mark.parametrize("seed", range(8))
def test_every_answer_is_that_of_the_rule_in_python(seed: int, tmp_path: Path) -> None:
    """Here a mark may occur under several entities, which no client sends: both process it in order, and agree."""
    dice, clock = Random(seed), FakeClock()
    store = RedisStore(shared().url(), prefix=prefix(tmp_path), clock=clock)
    run(store.open(ThreadRuntime()))
    model, real = Deliverer(MemoryStore(clock=clock)), Deliverer(store)
    seen: set[LatestDecision] = set()
    for batch in batches(dice, shuffled_with_repeats(dice, difficult_history(dice, clock, 60))):
        wanted = run(model.send(*batch))
        assert run(real.send(*batch)) == wanted
        seen.update(answer.decision for answer in wanted)
        ids = [id_of(entity) for entity in ENTITIES]
        assert run(store.read_latest(ids, timeout=5)) == run(model.store.read_latest(ids, timeout=5))
        clock.advance_microseconds(dice.choice((0, 0, 0, 1, HOUR, HOUR, DAY, RETENTION.marks, RETENTION.deleted)))
    run(store.close())
    assert seen == set(LatestDecision) - {LatestDecision.SKEW}, "the history must produce every decision"
