"""Whatever the order and the repetitions: a history ends in one state, on every store, sync and async."""

from __future__ import annotations

import threading
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward import Once
from onceward.latest import Ordering, StateEvent, deleted
from tests.clients import SyncClient
from tests.integration.trucks import HISTORY, BlockingState, _quiet, an_empty_store, at, backend, current, trucks

__all__ = ["_quiet", "backend", "trucks"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("E6")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "valkey"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORY, dice=st.randoms(use_true_random=False))
def test_any_permutation_and_repetition_of_a_history_ends_in_the_same_state(
    kind: str, history: list[tuple[Any, ...]], dice: Random
) -> None:
    events = [
        (entity, Ordering(time, sequence, published, f"m{n}" if has_id or not (time or sequence) else None), value, id)
        for n, (entity, time, sequence, published, has_id, value, id) in enumerate(history)
    ]
    ends = []
    with Once(an_empty_store(kind)) as once:
        for life in range(3):
            state = once.state(f"life {life}")
            delivered = events * (1 + life)
            dice.shuffle(delivered)
            for start in range(0, len(delivered), 3):
                state.apply_many(delivered[start : start + 3])
            ends.append([current(state, entity) for entity in ("a", "b")])
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.mission("E6")
def test_all_permutations_of_the_hardest_history_end_in_the_same_state(client: SyncClient) -> None:
    moment = "2025-12-31T12:00:00Z"
    history = [
        StateEvent("truck", Ordering(moment), "tie a"),
        StateEvent("truck", Ordering(moment), "tie b"),
        StateEvent("truck", Ordering(moment, 10, message_id="m1"), deleted, event_id="e"),
        StateEvent("truck", Ordering(moment, 10, "2026-01-01T00:00:00Z", "m2"), deleted, event_id="e"),
    ]
    ends = set()
    for number, order in enumerate(permutations(history)):
        state = BlockingState(client, f"life {number}")
        for event in order:
            state.apply_many([event])
        ends.add(repr(current(state, "truck")))
    assert len(ends) == 1


@pytest.mark.rival(18)
@pytest.mark.mission("E2")
def test_threads_that_deliver_one_history_end_in_its_state(client: SyncClient, trucks: BlockingState) -> None:
    history = [(f"truck {n % 5}", at(n % 7, sequence=n % 11, message_id=f"m{n}"), n) for n in range(150)]
    alone = BlockingState(client, "alone")
    alone.apply_many(history)
    lock = threading.Lock()
    first_seen: list[Any] = []

    def deliver() -> None:
        with lock:
            dice = Random(len(first_seen))
            first_seen.append(None)
        mine = dice.sample(history, len(history))
        for start in range(0, len(mine), 10):
            outcomes = trucks.apply_many(mine[start : start + 10])
            first_seen.extend(outcome.key for outcome in outcomes if not outcome.replayed)

    assert client.together(4, deliver) == [None] * 4
    assert len(first_seen) - 4 == len(history), "each message was new to exactly one of the threads"
    assert [current(trucks, f"truck {n}") for n in range(5)] == [current(alone, f"truck {n}") for n in range(5)]
