"""`once.state`: the latest state of entities, sync and async, on every store."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import (
    ConfigurationError,
    Executed,
    Failed,
    InvalidKey,
    Mismatch,
    MissingKey,
    Once,
    OutcomeParked,
    Parked,
    PayloadMismatch,
    Replayed,
    Stale,
    StoreUnavailable,
)
from onceward.errors import ResultError, StoreFull
from onceward.latest import DerivedId, Ordering, StateEvent, deleted
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.clients import SyncClient
from tests.integration.trucks import BlockingState, _quiet, at, backend, trucks

__all__ = ["_quiet", "backend", "trucks"]  # fixtures, re-exported so that pytest finds them


# ── outcomes ──


@pytest.mark.mission("E3")
def test_every_event_has_an_outcome_with_a_reason(trucks: BlockingState) -> None:
    first = trucks.apply("truck 7", at(5, message_id="m1"), {"km": 5}, event_id="e1")
    assert isinstance(first, Executed)
    assert (first.applied, first.reason, first.key, first.value) == (True, "applied", "truck 7", {"km": 5})
    again = trucks.apply("truck 7", at(5, message_id="m1"), {"km": 5}, event_id="e1")
    assert isinstance(again, Replayed)
    assert (again.applied, again.reason) == (False, "duplicate_message_noop")
    stale = trucks.apply("truck 7", at(4, message_id="m2"), {"km": 4}, event_id="e2")
    assert isinstance(stale, Stale)
    assert (stale.applied, stale.reason, stale.conflict) == (False, "stale_event_ignored", False)
    republished = trucks.apply("truck 7", at(5, message_id="m3"), {"km": 5}, event_id="e1")
    assert isinstance(republished, Replayed)
    assert (republished.applied, republished.reason) == (False, "duplicate_event_noop")
    assert trucks.get("truck 7") == {"km": 5}


@pytest.mark.mission("E3")
def test_outcomes_are_counted_and_emitted_as_events(client: SyncClient, trucks: BlockingState) -> None:
    for minute in (5, 4, 3):
        trucks.apply("truck 7", at(minute), minute)
    trucks.apply("truck 7", at(5), 5)
    counts = client.once.counts
    assert {name: counts[name] for name in ("applied", "stale", "skipped")} == {"applied": 1, "stale": 2, "skipped": 1}
    assert [(event.key, event.reason) for event in client.events_named("stale")] == [
        ("truck 7", "stale_event_ignored")
    ] * 2


@pytest.mark.fault("F18")
def test_a_message_with_another_payload_is_a_mismatch_and_changes_nothing(
    client: SyncClient, trucks: BlockingState
) -> None:
    trucks.apply("truck 7", at(5, message_id="m"), {"km": 5})
    outcome = trucks.apply("truck 7", at(9, message_id="m"), {"km": 9})
    assert isinstance(outcome, Mismatch)
    for other in (at(6, message_id="m"), at(5, sequence=1, message_id="m")):
        assert isinstance(trucks.apply("truck 7", other, {"km": 5}), Mismatch), "the ordering is part of the payload"
    assert isinstance(trucks.delete("truck 7", at(5, message_id="m")), Mismatch)
    with pytest.raises(PayloadMismatch, match="truck 7"):
        outcome.unwrap()
    assert trucks.get("truck 7") == {"km": 5}
    assert len(client.events_named("mismatch")) == 4


def test_the_payload_of_a_message_does_not_depend_on_key_order_or_time_zone(trucks: BlockingState) -> None:
    trucks.apply("truck 7", Ordering("2025-12-31T12:00:00Z", message_id="m"), {"a": 1, "b": 2})
    again = trucks.apply("truck 7", Ordering("2025-12-31T13:00:00+01:00", message_id="m"), {"b": 2, "a": 1})
    assert again.reason == "duplicate_message_noop"


@pytest.mark.fault("F73")
@pytest.mark.mission("E6")
def test_a_tie_with_other_content_is_reported_as_a_conflict(trucks: BlockingState) -> None:
    outcomes = {value: trucks.apply(f"there {value}", at(5), value) for value in ("a", "b")}
    assert all(not outcome.conflict for outcome in outcomes.values())
    for name, values in (("there", "ab"), ("back", "ba")):
        both_outcomes = [trucks.apply(name, at(5), value) for value in values]
        assert both_outcomes[1].conflict
        assert [type(outcome) for outcome in both_outcomes] in ([Executed, Executed], [Executed, Stale])
    assert trucks.get("there") == trucks.get("back")


# ── the state ──


def test_none_zero_and_nothing_at_all_are_values_like_any_other(trucks: BlockingState) -> None:
    values: list[Any] = [None, 0, "", [], False]
    for minute, value in enumerate(values):
        assert trucks.apply("truck", at(minute), value).applied
        current = trucks.read("truck")
        assert (current.value, current.deleted, current.entity) == (value, False, "truck")
    assert trucks.read("another") is None
    assert trucks.get("another") is None


def test_a_value_has_the_type_that_was_declared(client: SyncClient) -> None:
    trucks = BlockingState(client, "positions", Position)
    trucks.apply("truck", at(5), Position(1.5, -2.0))
    assert trucks.get("truck") == Position(1.5, -2.0)


@dataclass
class Position:
    x: float
    y: float


def test_read_returns_the_ordering_of_the_state(client: SyncClient, trucks: BlockingState) -> None:
    trucks.apply("truck", at(5, sequence=7, publish_time="2025-12-31T12:06:00Z", message_id="m"), "here")
    current = trucks.read("truck")
    moment = dt.datetime(2025, 12, 31, 12, 5, tzinfo=dt.UTC)
    assert current.ordering == Ordering(moment, 7, moment + dt.timedelta(minutes=1), "m")
    assert current.updated_at == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.mission("E6")
def test_a_deleted_entity_stays_deleted_until_something_newer(trucks: BlockingState) -> None:
    trucks.apply("truck", at(1), "here")
    assert trucks.delete("truck", at(5)).applied
    assert trucks.apply("truck", at(4), "there").reason == "stale_event_ignored"
    assert trucks.get("truck") is None
    assert trucks.read("truck").deleted
    assert trucks.apply("truck", at(6), "back").applied
    assert trucks.get("truck") == "back"


@pytest.mark.mission("E5")
@pytest.mark.fault("F7", "F8", "F11")
def test_entities_are_distinguished_like_keys(client: SyncClient, trucks: BlockingState) -> None:
    entities = [("prod", "a__b", "c"), ("prod", "a", "b__c"), ("staging", "a__b", "c"), 1, "1", True, 1.0, b"1"]
    for number, entity in enumerate(entities):
        trucks.apply(entity, at(5), number)
    assert [trucks.get(entity) for entity in entities] == list(range(len(entities)))
    assert BlockingState(client, "cars").get(1) is None, "another state"
    other = client.once.using(tenant="acme").state("trucks")
    assert client.wait(other.get(1)) is None, "another tenant"


@pytest.mark.mission("E4", "E5")
def test_a_logical_id_may_be_any_value(trucks: BlockingState) -> None:
    logical = {"schema": "v1", "type": "system_event", "service": "a", "producedAt": "", "region": ""}
    trucks.apply("a", at(1, message_id="m1"), 1, event_id=logical)
    assert trucks.apply("a", at(1, message_id="m2"), 1, event_id=dict(reversed(logical.items()))).replayed
    assert trucks.apply("b", at(1, message_id="m3"), 1, event_id=logical).executed, "of another entity"


# ── many ──


@pytest.mark.mission("D6", "E3")
def test_thousands_in_one_call_have_an_outcome_each_in_input_order(trucks: BlockingState) -> None:
    events = [StateEvent(f"truck {n % 70}", at(n // 70, message_id=f"m{n}"), n, event_id=n) for n in range(2_500)]
    events.append(StateEvent("truck 0", at(59), deleted))
    assert {str(outcome) for outcome in trucks.apply_many(events)} == {"applied"}
    assert trucks.get("truck 0") is None
    assert trucks.get("truck 69") == 2_449
    backwards = trucks.apply_many(reversed(events))
    assert {str(outcome) for outcome in backwards} == {"duplicate_message_noop"}
    assert [outcome.key for outcome in backwards[-3:]] == ["truck 2", "truck 1", "truck 0"]


def test_an_invalid_event_fails_alone(trucks: BlockingState) -> None:
    events: list[Any] = [
        ("a", "2025-12-31T12:00Z", 1),
        ("b", "noon", 2),
        ("c", Ordering(), 3),
        ("d", "2025-12-31T12:00Z", object()),
        ("e", "2025-12-31T12:00Z", float("nan")),
        ("", "2025-12-31T12:00Z", 4),
        ("f", "2025-12-31T12:00Z", 5, ""),
        "g",
        ("h", "2025-12-31T12:00Z", 6, "event 6"),
    ]
    outcomes = trucks.apply_many(iter(events))
    assert [outcome.executed for outcome in outcomes] == [True, *[False] * 7, True]
    assert all(isinstance(outcome, Failed) and outcome.final for outcome in outcomes[1:-1])
    kinds = [type(outcome.exception) for outcome in outcomes[1:-1]]
    assert kinds == [InvalidKey, MissingKey, InvalidKey, InvalidKey, MissingKey, MissingKey, ConfigurationError]
    assert trucks.apply_many([]) == []


@pytest.mark.fault("F22")
def test_what_cannot_be_kept_is_refused_before_anything_happens(client: SyncClient, trucks: BlockingState) -> None:
    with pytest.raises(ResultError, match="cannot be stored"):
        trucks.apply("truck", at(1, message_id="m"), Random(1).randbytes(1_200_000))
    with pytest.raises(InvalidKey, match="no time zone"):
        trucks.apply("truck", "2025-12-31T12:00", 1)
    assert trucks.read("truck") is None
    assert trucks.apply("truck", at(1, message_id="m"), "short").executed


def test_a_large_batch_of_large_values_is_sent_in_parts(trucks: BlockingState) -> None:
    values = [Random(n).randbytes(700_000) for n in range(9)]
    assert all(outcome.executed for outcome in trucks.apply_many([(n, at(1), value) for n, value in enumerate(values)]))
    assert [trucks.get(n) for n in range(9)] == values


# ── time ──


@pytest.mark.mission("E7")
def test_messages_are_known_for_a_week_and_purged_after_it(client: SyncClient, trucks: BlockingState) -> None:
    trucks.apply("truck", at(5), "newest")
    late = at(1, message_id="m")
    trucks.apply("truck", late, "late", event_id="e")
    client.clock.advance("6d23h")
    assert trucks.apply("truck", late, "late").reason == "duplicate_message_noop"
    assert client.purge() == 0
    client.clock.advance("1h")
    by_itself = client.backend.kind == "valkey"  # the server expires them and does not count them
    assert client.purge() == (0 if by_itself else 2), "the message, and the event"
    assert client.purge() == 0
    assert trucks.apply("truck", late, "late").reason == "stale_event_ignored"
    assert trucks.get("truck") == "newest"


def test_how_long_things_are_kept_is_declared(client: SyncClient) -> None:
    short = BlockingState(client, "short", window="1h", keep_deleted="2h", max_clock_skew=None)
    short.delete("truck", at(5, message_id="m"))
    client.clock.advance("1h")
    assert short.apply("truck", at(4), 4).reason == "stale_event_ignored"
    client.clock.advance("1h")
    assert short.apply("truck", at(4), 4).reason == "applied"
    assert short.apply("truck", "9999-12-31T23:59:59Z", 5).applied, "nothing is too far ahead"
    with pytest.raises(ConfigurationError, match=r"keep_deleted \(1h\) is shorter than window \(1w\)"):
        BlockingState(client, "wrong", keep_deleted="1h")
    with pytest.raises(TypeError):
        BlockingState(client, "wrong", windows="1h")


@pytest.mark.fault("F43")
def test_an_event_of_the_future_is_parked_until_its_time_comes(client: SyncClient, trucks: BlockingState) -> None:
    early = Ordering("2026-01-01T00:05:01Z", message_id="m")
    outcome = trucks.apply("truck", early, "future")
    assert isinstance(outcome, Parked)
    assert (outcome.reason, outcome.applied) == ("future_event_parked", False)
    with pytest.raises(OutcomeParked, match="more than 5m ahead"):
        outcome.unwrap()
    assert trucks.read("truck") is None
    assert [event.reason for event in client.events_named("parked")] == ["future_event_parked"]
    without = Ordering(sequence=1, publish_time="2026-01-01T00:05:01Z")
    assert trucks.apply("truck", without, "future").reason == "future_event_parked", "by the only time it has"
    assert trucks.apply("truck", "2026-01-01T00:05:00Z", "just so").applied
    client.clock.advance("1s")
    assert trucks.apply("truck", early, "future").applied


# ── trouble ──


@pytest.mark.fault("F50", "F53")
def test_a_lost_reply_is_repaired_by_delivering_again(client: SyncClient, trucks: BlockingState) -> None:
    with client.store_trouble("apply_events", times=1, applied=True), pytest.raises(StoreUnavailable):
        trucks.apply("truck", at(5, message_id="m"), "here")
    assert trucks.apply("truck", at(5, message_id="m"), "here").reason == "duplicate_message_noop"
    with client.store_trouble("apply_events", times=1), pytest.raises(StoreUnavailable):
        trucks.apply("truck", at(6, message_id="m6"), "there")
    assert trucks.apply("truck", at(6, message_id="m6"), "there").reason == "applied"
    assert trucks.get("truck") == "there"


def test_the_memory_store_is_bounded_and_writes_no_mark_without_its_state() -> None:
    clock = FakeClock()
    trucks = Once(MemoryStore(max_records=3, clock=clock)).state("trucks")
    assert trucks.apply("a", at(1, message_id="m"), 1).executed
    with pytest.raises(StoreFull, match="needs 2 more"):
        trucks.apply("b", at(1, message_id="m"), 1)
    assert trucks.apply("b", at(1), 1).executed
    assert trucks.apply("a", at(2), 2).executed, "nothing new to keep"
    clock.advance("7d")
    assert trucks.apply("c", at(1), 1).executed, "the mark has expired"


def test_a_state_works_on_a_client_with_a_cache(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/a.db", cache=10) as once:
        trucks = once.state("trucks")
        assert trucks.apply("truck", at(1), 1).executed
        assert trucks.get("truck") == 1
        assert once.purge() == 0
    assert repr(trucks).startswith("<LatestState default/trucks on sqlite:///")


def test_a_store_without_the_capability_says_so() -> None:
    class Plain(MemoryStore):
        latest = None  # type: ignore[assignment]

    for store in (Plain(), Plain()):
        with pytest.raises(ConfigurationError, match="cannot store the latest state"):
            Once(store).state("trucks").get("truck")
    with pytest.raises(ConfigurationError, match="cannot store the latest state"):
        Once(Plain(), cache=5).state("trucks").apply("truck", at(1), 1)
    assert Once(Plain()).purge() == 0


# ── listing ──


@pytest.mark.mission("E2")
def test_entities_are_listed_by_name_with_what_they_hold(client: SyncClient, trucks: BlockingState) -> None:
    others = BlockingState(client, "boats")
    assert trucks.entities() == []
    for name in ("b", "a", "gone", "c"):
        trucks.apply(name, at(1), {"of": name})
        others.apply(name, at(1), "another")
    trucks.delete("gone", at(2))
    assert [(one.entity, one.value) for one in trucks.entities()] == [(name, {"of": name}) for name in "abc"]
    assert trucks.entities()[0] == trucks.read("a")
    assert len(trucks.entities(limit=2)) == 2
    with pytest.raises(ConfigurationError, match="limit"):
        trucks.entities(limit=0)


def test_a_long_list_is_read_in_pages() -> None:
    with Once(MemoryStore()) as once:
        state = once.state("many")
        state.apply_many([(n, at(1), n) for n in range(1_203)])
        assert len(state.entities()) == 1_000
        assert sorted(one.value or 0 for one in state.entities(limit=5_000)) == list(range(1_203))


@pytest.mark.mission("E2", "E4", "E7")
def test_what_is_known_of_a_message_and_of_an_event(client: SyncClient) -> None:
    trucks = BlockingState(client, "trucks", window="1h")
    trucks.apply("truck 7", at(5, message_id="m1"), 1, event_id=("e", 1))
    trucks.apply("truck 7", at(5, message_id="m2"), 1, event_id=("e", 1))
    first, again = trucks.known("truck 7", message_id="m1"), trucks.known("truck 7", message_id="m2")
    assert (first.message_id, again.message_id) == ("m1", "m2")
    assert trucks.known("truck 7", event_id=("e", 1)).message_id == "m1", "the message that brought it first"
    assert first.expires_at - first.created_at == dt.timedelta(hours=1)
    assert trucks.known("truck 8", message_id="m1") is None, "it belongs to its entity"
    for named in ({}, {"message_id": "m1", "event_id": 1}):
        with pytest.raises(ConfigurationError, match="either"):
            trucks.known("truck 7", **named)
    client.clock.advance("1h")
    assert trucks.known("truck 7", message_id="m1") is None


# ── the payload of an event ──


@pytest.mark.finding("N51")
@pytest.mark.mission("E3", "E4")
def test_delivery_metadata_in_a_value_does_not_change_its_content(trucks: BlockingState) -> None:
    """The value contains the message that brought it; only the payload decides whether events are equal."""

    def deliver(message: str, status: str = "ok") -> tuple[str, bool]:
        value = {"status": status, "by": message}
        outcome = trucks.apply("a", at(5, message_id=message), value, event_id="e", payload={"status": status})
        return outcome.reason, outcome.applied

    assert deliver("m1") == ("applied", True)
    assert deliver("m2") == ("duplicate_event_noop", False), "without a payload it would be another event"
    assert trucks.get("a") == {"status": "ok", "by": "m1"}, "a known event changes nothing, not even its source"
    assert deliver("m1") == ("duplicate_message_noop", False)
    assert deliver("m1", "down") == ("mismatch", False)
    assert deliver("m3", "down") == ("event_mismatch", False)
    assert trucks.get("a") == {"status": "ok", "by": "m1"}
    outcomes = trucks.apply_many([
        StateEvent("b", at(5, message_id="m1"), 1, "e", "the same"),
        StateEvent("b", at(5, message_id="m2"), 2, "e", "the same"),
        StateEvent("b", at(6), deleted, payload="ignored"),
    ])  # fmt: skip
    assert [str(outcome) for outcome in outcomes] == ["applied", "duplicate_event_noop", "applied"]


@pytest.mark.finding("N51")
@pytest.mark.mission("E4")
def test_a_known_event_changes_nothing_and_other_content_is_a_reported_mismatch(
    client: SyncClient, trucks: BlockingState
) -> None:
    trucks.apply("a", at(5, publish_time="2025-12-31T12:05:00Z", message_id="m1"), 1, event_id="e")
    before = trucks.read("a")
    later = trucks.apply("a", at(5, publish_time="2025-12-31T12:09:00Z", message_id="m2"), 1, event_id="e")
    assert (later.reason, later.applied) == ("duplicate_event_noop", False)
    assert trucks.read("a") == before, "not even the ordering changes"
    other = trucks.apply("a", at(9, message_id="m3"), 2, event_id="e")
    assert isinstance(other, Mismatch)
    assert (other.reason, other.applied, other.key) == ("event_mismatch", False, "a")
    assert trucks.read("a") == before
    assert client.once.counts["mismatch"] == 1
    assert [(event.key, event.reason) for event in client.events_named("mismatch")] == [("a", "event_mismatch")]
    assert trucks.known("a", message_id="m3") is None, "the message of a mismatch is not recorded"
    assert trucks.apply("a", at(9, message_id="m3"), 2, event_id="another").applied


@pytest.mark.finding("N51")
def test_a_payload_is_the_whole_content_so_a_time_of_the_transport_makes_no_other_event(trucks: BlockingState) -> None:
    """An event without a time of its own is ordered by the broker's, which differs if it is published again."""
    assert trucks.apply("a", at(5, message_id="m1"), "ok at 5", event_id="e", payload="ok").applied
    again = trucks.apply("a", at(6, message_id="m2"), "ok at 6", event_id="e", payload="ok")
    assert again.reason == "duplicate_event_noop"
    assert trucks.get("a") == "ok at 5"


@pytest.mark.finding("N51")
@pytest.mark.mission("E4")
def test_other_content_under_a_derived_id_is_another_event_and_each_is_known(trucks: BlockingState) -> None:
    derived = DerivedId("a at 5")
    first = trucks.apply("a", at(5, sequence=1, message_id="m1"), "one", event_id=derived)
    other = trucks.apply("a", at(5, sequence=2, message_id="m2"), "two", event_id=derived)
    assert [first.reason, other.reason] == ["applied", "applied"]
    for message, sequence, value in (("m3", 1, "one"), ("m4", 2, "two")):
        again = trucks.apply("a", at(5, sequence=sequence, message_id=message), value, event_id=derived)
        assert again.reason == "duplicate_event_noop"
    assert trucks.get("a") == "two"
    with pytest.raises(ConfigurationError, match="message_id"):
        trucks.known("a", event_id=derived)
