"""A check that cannot fail is no check: locks and operations that are broken on purpose, each caught by its test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import OncewardError
from onceward.engine import execute, lookup
from onceward.engine.acquire import acquire
from onceward.engine.attempt import Attempt
from onceward.locks import flow as lock
from onceward.operations import function
from onceward.operations import table as operations
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Release
from onceward.testing.clock import FakeClock
from tests.clients import Backend, SyncClient
from tests.integration import lock_calls, test_lock_leases, test_lock_trouble, test_locks
from tests.integration import test_operations as declared

Broken = Callable[[pytest.MonkeyPatch], None]


def frees_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """Releases without an owner check, as get-then-delete does."""

    async def give_up(held: Attempt) -> None:
        await held.engine.store.forget([held.key.id], force=True, timeout=5)
        held.abandon()

    patch.setattr(lock, "release_lock", give_up)


def says_that_nothing_was_begun(patch: pytest.MonkeyPatch) -> None:
    """Releases by the verb `release`: after a take-over, the crash goes on counting."""

    def given_up(record: Record) -> Release:
        return Release(record.id, record.token, record.nonce)

    patch.setattr(lock, "lock_release", given_up)


def keeps_what_it_gives_up(patch: pytest.MonkeyPatch) -> None:
    """Leaves the lock to its lease."""

    async def give_up(held: Attempt) -> None:
        held.abandon()

    patch.setattr(lock, "release_lock", give_up)


def fails_what_failed(patch: pytest.MonkeyPatch) -> None:
    """Records a block that raised as a failed attempt."""
    sound = lock.leave

    async def leave(held: Attempt, error: BaseException | None) -> None:
        if error is None:
            return await sound(held, error)
        await held.fail(error, final=False, known=False)
        return None

    patch.setattr("onceward.locks.api.leave", leave)


def believes_the_clock(patch: pytest.MonkeyPatch) -> None:
    """Takes a lock that was given up for work that is done, as long as the clock says so."""
    patch.setattr(lock, "claim_lock", acquire)


def forgets_what_was_unanswered(patch: pytest.MonkeyPatch) -> None:
    """Takes its own release, whose reply was lost, for a loss."""
    patch.setattr(lock, "_released_before", lambda *_: False)


def counts_only_success(patch: pytest.MonkeyPatch) -> None:
    """A window from the attempt, but a failed attempt does not count: the seed's own trap."""
    patch.setattr(operations, "TRIED", ())


def counts_from_completion(patch: pytest.MonkeyPatch) -> None:
    """Reads window_from, and does not do it."""
    patch.setattr(operations, "replace", lambda window, since: window)


def has_words_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """Replays under the word of the library instead of the operation's."""
    sound = lookup.replayed_outcome

    def replayed(job: Any, *details: Any) -> Any:
        outcome = sound(job, *details)
        return type(outcome)(key=outcome.key, value=outcome.value)

    for place in (lookup, execute, function):  # each has it by its name
        patch.setattr(place, "replayed", replayed)


CASES: list[tuple[Broken, Callable[[SyncClient], None]]] = [
    (
        frees_for_anybody,
        test_lock_leases.test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_nobody_elses,
    ),
    (
        says_that_nothing_was_begun,
        test_lock_leases.test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_nobody_elses,
    ),
    (keeps_what_it_gives_up, test_locks.test_a_lock_is_taken_by_one_and_free_at_once_when_that_one_releases_it),
    (fails_what_failed, test_locks.test_a_failed_block_is_no_failed_attempt_and_leaves_nothing_but_a_free_lock),
    (believes_the_clock, test_lock_leases.test_a_free_lock_is_free_whatever_the_clock_says),
    (
        forgets_what_was_unanswered,
        test_lock_trouble.test_a_release_whose_reply_was_lost_is_no_loss_though_another_has_it_by_now,
    ),
    (counts_only_success, declared.test_an_enrichment_that_failed_was_tried_and_is_not_tried_again_for_a_day),
    (counts_from_completion, declared.test_from_the_attempt_means_from_its_claim_and_not_from_its_end),
    (has_words_of_its_own, declared.test_every_outcome_has_the_reason_that_the_operation_declares),
]


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[SyncClient]:
    client = SyncClient(Backend("memory", folder, FakeClock()), operations=declared.OPERATIONS)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.mission("C2", "C6", "C9")
@pytest.mark.parametrize(("broken", "caught_by"), CASES, ids=lambda one: one.__name__)
def test_it_is_caught(
    broken: Broken, caught_by: Callable[[SyncClient], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path) as client:
        caught_by(client)
    broken(monkeypatch)
    with stage(tmp_path) as client, pytest.raises((AssertionError, OncewardError, pytest.fail.Exception)) as caught:
        caught_by(client)
    print(f"{broken.__doc__} Caught: {caught.value!r:.200}")


def test_a_lock_that_was_given_up_is_completed_and_over(tmp_path: Path) -> None:
    """What the variants above do otherwise, seen in the record."""
    with stage(tmp_path) as client:
        with lock_calls.locked(client):
            pass
        record = lock_calls.record_of(client)
        assert (record.state, record.valid_until) == (RecordState.COMPLETED, record.updated_at)
