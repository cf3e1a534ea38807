"""Newest wins on Redis: the Lua agrees with the rule in Python, and is caught when it is wrong by one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from onceward.protocol.latest import EventDelivery, LatestDecision
from onceward.protocol.ordering import CONTENT_BYTES
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.memory.store import MemoryStore
from onceward.stores.redis import RedisStore
from onceward.testing import FakeClock
from onceward.testing.conformance.latest import ENTITIES, KEEP, Deliverer
from onceward.testing.conformance.latest_histories import batches, delivered, made_up
from onceward.testing.conformance.stage import DAY, HOUR, id_of
from tests.conformance.on_redis import OnRedis, prefix
from tests.conformance.test_redis_broken import Slip, Slipped
from tests.servers.language import backwards
from tests.servers.redis import RedisServer, shared

RISES = "local rises = not before or is_higher(order, before)"
DUPLICATE = "a_message_that_is_known_is_a_duplicate_and_with_other_content_a_mismatch"
PUBLISHED_AGAIN = "an_event_that_is_published_again_is_a_duplicate_and_still_passes_the_guard"
ANY_ORDER = "any_order_and_repetition_of_a_history_ends_in_the_same_state"


def newest(right: str, wrong: str, caught_by: str) -> Slip:
    return Slip("newest", right, wrong, caught_by)


SLIPS = {
    "compares the timestamp only": newest(
        RISES, "local rises = not before or is_higher(sub(order, 1, 11), sub(before, 1, 11))", ANY_ORDER,
    ),
    "compares the timestamp only, one part after the other": newest(
        RISES, "local rises = not before or is_higher(sub(order, 1, 11), sub(before, 1, 11))",
        "parts_decide_in_their_order_and_a_missing_one_is_lowest",
    ),
    "the last arrival wins": newest(RISES, "local rises = true", "a_newer_event_is_applied_and_an_older_one_is_stale"),
    "the first arrival wins a tie": newest(
        RISES, "local rises = not before or is_higher(sub(order, 1, -17), sub(before, 1, -17))",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "the last arrival wins a tie": newest(
        RISES, "local rises = not before or not is_higher(sub(before, 1, -17), sub(order, 1, -17))",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "an order ends at its first NUL": newest(
        "if x ~= y then return x > y end", "if x + y == 0 then return false end\n    if x ~= y then return x > y end",
        "orders_are_compared_byte_by_byte",
    ),
    "bytes have signs": newest(
        "if x ~= y then return x > y end", "if x ~= y then return (x + 128) % 256 > (y + 128) % 256 end",
        "orders_are_compared_byte_by_byte",
    ),
    "the longer order is the newer": newest(
        "for i = 1, math.min(#a, #b) do", "if #a ~= #b then return #a > #b end\n  for i = 1, #a do",
        "orders_are_compared_byte_by_byte",
    ),
    "dedupe decides about the state": newest(
        "if rises then write_state", "if rises and not name then write_state", PUBLISHED_AGAIN,
    ),
    "dedupe decides about the state, in any order": newest(
        "if rises then write_state", "if rises and not name then write_state", ANY_ORDER,
    ),
    "a delete leaves nothing behind": newest(
        "local ends = not is_there and DELETED_END or nil",
        "if not is_there then return redis.call('DEL', key) end\n  local ends",
        "a_deleted_entity_is_not_brought_back_by_older_events",
    ),
    "a deleted entity is kept for ever": newest(
        "if expires_at > 0 and expires_at <= now then return nil, '' end", "",
        "what_is_left_of_a_deleted_entity_expires",
    ),
    "what came back expires": newest(
        "bytes(ends or 0)", "bytes(DELETED_END)",
        "what_is_left_of_a_deleted_entity_expires",
    ),
    "marks are known for ever": newest(
        "if s and number(sub(s, 9, 16)) > now then", "if s then", "marks_expire_and_are_deleted_in_batches",
    ),
    "a stale event claims nothing": newest(
        "if has_message == 1 and not seen then", "if has_message == 1 and not seen and rises then",
        "a_stale_event_claims_its_message_too",
    ),
    "messages are not claimed at all": newest(
        "if has_message == 1 and not seen then", "if false then", DUPLICATE,
    ),
    "other content is a duplicate": newest(
        "if seen ~= content and byte(seen) == byte(content) then return MISMATCH end", "", DUPLICATE,
    ),
    "events are not known": newest("not seen and has_event == 1 and read_mark(event) or nil", "nil", PUBLISHED_AGAIN),
    "an event published again leaves its message unknown": newest(
        "if has_message == 1 and not seen then", "if has_message == 1 and not seen and not known then", PUBLISHED_AGAIN,
    ),
    "published again counts as applied": newest(
        "return is_new and name + APPLIES + conflict or name", "return name + APPLIES + conflict", PUBLISHED_AGAIN,
    ),
    "the same again is stale": newest(
        "order == before and DUPLICATE_MESSAGE or STALE", "STALE", "events_without_any_id_are_known_by_their_order",
    ),
    "the future is applied": newest(
        "elseif now < not_before then", "elseif false then",
        "an_event_of_the_future_is_parked_and_leaves_nothing_behind",
    ),
    "what is parked is known": newest(
        "    return PUT_ASIDE",
        "    put(message, bytes(now) .. bytes(MARKS_END) .. content)\n    return PUT_ASIDE",
        "an_event_of_the_future_is_parked_and_leaves_nothing_behind",
    ),
    "a conflict is not told": newest(
        "order ~= before and sub(order, 1, -CONTENT - 1)", "false and sub(order, 1, -CONTENT - 1)",
        "a_tie_is_decided_by_content_whichever_comes_first",
    ),
    "nothing is stored": newest(
        "if rises then write_state(entity, state, order, more) end", "",
        "a_newer_event_is_applied_and_an_older_one_is_stale",
    ),
}  # fmt: skip


@pytest.mark.mission("E2", "E3", "E4", "E6", "E7")
@pytest.mark.parametrize("what", SLIPS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught(SLIPS[what], tmp_path, monkeypatch)


def caught(slip: Slip, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Slipped(slip)
    monkeypatch.setattr("onceward.stores.redis.calls.script", kit.script)
    with pytest.raises(AssertionError) as error:
        getattr(kit, f"test_{slip.caught_by}")("blocking", place)
    assert str(error.value), "a check must say what is wrong"


# ── languages ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def foreign(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server on which Lua says that z comes before a. Children of a test find it, too."""
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
    as_text = newest("for i = 1, math.min(#a, #b) do", "if true then return a > b end\n  for i = 1, 0 do", check)
    caught(as_text, tmp_path, monkeypatch)


# ── the rule in Lua and the rule in Python ──────────────────────────────────────────────────────────────────────────


def troubled(dice: Random, clock: FakeClock, size: int) -> list[EventDelivery]:
    """A history with all that a store may be given: also other content under known ids, and the future."""
    given = made_up(dice, size)
    for _ in range(size // 2):
        one, other = dice.sample(given, 2)
        stranger = replace(one, order=one.order[:-CONTENT_BYTES] + b"\2" + one.order[1 - CONTENT_BYTES :])
        given += [
            replace(one, message=other.message, event=one.event),
            replace(one, event=other.event, order=other.order),
            replace(one, not_before=clock.now() + dice.choice((-DAY, HOUR, 8 * DAY, 2**60))),
            replace(one, not_before=-(2**50)),
            stranger,
        ]
    return [replace(one, id=id_of(one.entity)) for one in given]


@pytest.mark.mission("E3", "E6")
@pytest.mark.parametrize("seed", range(8))
def test_every_answer_is_that_of_the_rule_in_python(seed: int, tmp_path: Path) -> None:
    """A mark may turn up under several entities here, which no client sends: both go in order, and agree."""
    dice, clock = Random(seed), FakeClock()
    store = RedisStore(shared().url(), prefix=prefix(tmp_path), clock=clock)
    run(store.open(ThreadRuntime()))
    model, real = Deliverer(MemoryStore(clock=clock)), Deliverer(store)
    seen: set[LatestDecision] = set()
    for batch in batches(dice, delivered(dice, troubled(dice, clock, 60))):
        wanted = run(model.send(*batch))
        assert run(real.send(*batch)) == wanted
        seen.update(answer.decision for answer in wanted)
        ids = [id_of(entity) for entity in ENTITIES]
        assert run(store.latest(ids, timeout=5)) == run(model.store.latest(ids, timeout=5))
        clock.advance_microseconds(dice.choice((0, 0, 0, 1, HOUR, HOUR, DAY, KEEP.marks, KEEP.deleted)))
    run(store.close())
    assert seen == set(LatestDecision) - {LatestDecision.SKEW}, "a history in which little happens shows little"
