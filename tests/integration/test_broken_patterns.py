"""A check that cannot fail proves nothing: locks and operations broken on purpose, each caught by its test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import OncewardError
from onceward.engine import refusal, runner, settle
from onceward.engine.attempt import Attempt
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.runner import claim_one
from onceward.locks import flow as lock
from onceward.operations import table as operations
from onceward.protocol.outcome import Outcome
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Release
from onceward.testing.clock import FakeClock
from tests.clients import Backend, SyncClient
from tests.integration import lock_calls, test_lock_leases, test_lock_trouble, test_locks
from tests.integration import test_operations as declared

Broken = Callable[[pytest.MonkeyPatch], None]


def releases_without_owner_check(patch: pytest.MonkeyPatch) -> None:
    """Releases without an owner check, as get-then-delete does."""

    async def release(attempt: Attempt) -> None:
        await attempt.engine.store.forget([attempt.key.id], force=True, timeout=5)
        attempt.abandon()

    patch.setattr(lock, "release_lock", release)


def releases_with_the_release_verb(patch: pytest.MonkeyPatch) -> None:
    """Releases with the verb `release`: after a takeover, the crashed attempt keeps counting."""

    def release_request(record: Record) -> Release:
        return Release(record.id, record.token, record.nonce)

    patch.setattr(lock, "lock_release", release_request)


def never_releases(patch: pytest.MonkeyPatch) -> None:
    """Leaves the lock until its lease expires."""

    async def release(attempt: Attempt) -> None:
        attempt.abandon()

    patch.setattr(lock, "release_lock", release)


def records_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Records a block that raised as a failed attempt."""
    original = lock.leave

    async def leave(attempt: Attempt, error: BaseException | None) -> None:
        if error is None:
            return await original(attempt, error)
        await settle.fail(attempt, error, final=False, known=False)
        return None

    patch.setattr("onceward.locks.api.leave", leave)


def believes_the_clock(patch: pytest.MonkeyPatch) -> None:
    """Treats a released lock as completed work, as long as the clock says so."""

    async def claim_once(engine: Engine, job: Job) -> Attempt | Outcome[Any]:
        attempt = Attempt(engine, job)
        return await claim_one(attempt) or attempt

    patch.setattr(lock, "claim_lock", claim_once)


def forgets_lost_replies(patch: pytest.MonkeyPatch) -> None:
    """Treats its own release, whose reply was lost, as a lost lease."""
    patch.setattr(lock, "_released_before", lambda *_: False)


def counts_only_success(patch: pytest.MonkeyPatch) -> None:
    """Opens a window from the attempt, but does not count failed attempts: the bug of the original system."""
    patch.setattr(operations, "ANY_FAILURE", ())


def counts_from_completion(patch: pytest.MonkeyPatch) -> None:
    """Reads window_from, and ignores it."""
    patch.setattr(operations, "replace", lambda window, since: window)


def uses_the_library_reason(patch: pytest.MonkeyPatch) -> None:
    """Replays with the library's reason instead of the operation's."""
    original = refusal.replayed_outcome

    def replayed(job: Any, *details: Any) -> Any:
        outcome = original(job, *details)
        return type(outcome)(key=outcome.key, value=outcome.value)

    for module in (runner, refusal):  # each refers to it by name
        patch.setattr(module, "replayed_outcome", replayed)


CASES: list[tuple[Broken, Callable[[SyncClient], None]]] = [
    (
        releases_without_owner_check,
        test_lock_leases.test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_no_other_lock,
    ),
    (
        releases_with_the_release_verb,
        test_lock_leases.test_a_silent_owner_is_replaced_after_its_lease_and_its_late_release_frees_no_other_lock,
    ),
    (never_releases, test_locks.test_a_lock_has_one_owner_and_is_free_immediately_after_its_release),
    (records_a_failure, test_locks.test_a_failed_block_is_no_failed_attempt_and_leaves_nothing_but_a_free_lock),
    (believes_the_clock, test_lock_leases.test_a_free_lock_is_free_whatever_the_clock_says),
    (
        forgets_lost_replies,
        test_lock_trouble.test_a_release_whose_reply_was_lost_is_no_loss_though_another_has_it_by_now,
    ),
    (counts_only_success, declared.test_an_enrichment_that_failed_was_tried_and_is_not_tried_again_for_a_day),
    (counts_from_completion, declared.test_from_the_attempt_means_from_its_claim_and_not_from_its_end),
    (uses_the_library_reason, declared.test_every_outcome_has_the_reason_that_the_operation_declares),
]


@contextlib.contextmanager
def memory_client(folder: Path) -> Iterator[SyncClient]:
    client = SyncClient(Backend("memory", folder, FakeClock()), operations=declared.OPERATIONS)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.mission("C2", "C6", "C9")
@pytest.mark.parametrize(("broken", "caught_by"), CASES, ids=lambda one: one.__name__)
def test_the_broken_variant_is_caught(
    broken: Broken, caught_by: Callable[[SyncClient], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_client(tmp_path) as client:
        caught_by(client)
    broken(monkeypatch)
    with (
        memory_client(tmp_path) as client,
        pytest.raises((AssertionError, OncewardError, pytest.fail.Exception)) as caught,
    ):
        caught_by(client)
    print(f"{broken.__doc__} Caught: {caught.value!r:.200}")


def test_a_lock_that_was_given_up_is_completed_and_over(tmp_path: Path) -> None:
    """What the variants above do differently, as seen in the record."""
    with memory_client(tmp_path) as client:
        with lock_calls.locked(client):
            pass
        record = lock_calls.record_of(client)
        assert (record.state, record.valid_until) == (RecordState.COMPLETED, record.updated_at)
