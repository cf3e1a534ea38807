"""The explorer passes the real state table and catches each deliberately broken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from onceward.protocol import cells, transitions
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, Release, Renewal, Verdict
from tests.unit.explore import SCENARIOS, Rules, explore

Step = tuple[Record | None, Verdict]


def claim_as(
    change: Callable[[Record, ClaimRequest, int], Record],
) -> Callable[[Record | None, ClaimRequest, int], Step]:
    """Return a claim that sees a changed record."""

    def claim(record: Record | None, request: ClaimRequest, now: int) -> Step:
        if record is None or record.nonce == request.nonce:
            return transitions.claim(record, request, now)
        seen = change(record, request, now)
        after, verdict = transitions.claim(seen, request, now)
        return (record if after is seen else after), verdict

    return claim


def blind_take_over(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, lease_until=now) if record.state is RecordState.PENDING else record


def missing_lease_is_free(record: Record, request: ClaimRequest, now: int) -> Record:
    return (
        replace(record, lease_until=now)
        if record.state is RecordState.PENDING and record.lease_until is None
        else record
    )


def only_the_claimant_decides(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, after_crash=AfterCrash.RERUN)


def parked_is_free(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, state=RecordState.FAILED, retry_at=now) if record.state is RecordState.PARKED else record


def window_forgotten_early(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, valid_until=now) if record.state is RecordState.COMPLETED else record


def complete_without_token(record: Record | None, request: Any, now: int) -> Step:
    if record is not None and isinstance(request, Complete):
        request = replace(request, token=record.token, nonce=record.nonce)
    return transitions.settle(record, request, now)


def complete_by_token_age(record: Record | None, request: Any, now: int) -> Step:
    """Time decides instead of ownership: the late owner is refused although it was not replaced."""
    late = record is not None and transitions.row_of(record, now) is transitions.Row.PENDING_LAPSED
    if late and isinstance(request, Complete):
        return record, Verdict.LOST
    return transitions.settle(record, request, now)


def release_still_counts(record: Record | None, request: Any, now: int) -> Step:
    after, verdict = transitions.settle(record, request, now)
    if record is not None and after is not None and after is not record and isinstance(request, Release):
        after = replace(after, attempt=record.attempt)
    return after, verdict


def failure_deletes(record: Record | None, request: Any, now: int) -> Step:
    after, verdict = transitions.settle(record, request, now)
    return (None if after is not None and after.state is RecordState.FAILED else after), verdict


def renew_without_nonce(record: Record | None, request: Renewal, now: int) -> Step:
    if record is not None and record.state is RecordState.PENDING:
        request = replace(request, token=record.token, nonce=record.nonce)
    return transitions.renew(record, request, now)


def forget_resets_token(record: Record | None, now: int, *, force: bool = False) -> Step:
    after, verdict = transitions.forget(record, now, force=force)
    return (replace(after, token=0) if after is not None and after is not record else after), verdict


def forget_frees_a_live_owner(record: Record | None, now: int, *, force: bool = False) -> Step:
    """It answers as it should, but frees the key of a live owner anyway."""
    return transitions.forget(record, now, force=True)[0], transitions.forget(record, now, force=force)[1]


def attempts_not_counted(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    if record is not None and verdict is Verdict.ACQUIRED and after.cycle == record.cycle:
        after = replace(after, attempt=record.attempt)
    return after, verdict


def fingerprint_before_window(record: Record | None, request: ClaimRequest, now: int) -> Step:
    if record is not None and transitions.differs(record.fingerprint, request.fingerprint):
        return record, Verdict.MISMATCH
    return transitions.claim(record, request, now)


def regrant_grants_again(record: Record | None, request: ClaimRequest, now: int) -> Step:
    if record is not None and record.nonce == request.nonce and record.state is RecordState.PENDING:
        return cells.acquire_next_attempt(record, request, now, record.after_crash, ask_first=record.ask_first)
    return transitions.claim(record, request, now)


def sliding_never_written(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (record if verdict is Verdict.REPLAY else after), verdict


def token_from_the_clock_alone(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (replace(after, token=now) if verdict is Verdict.ACQUIRED and after is not record else after), verdict


MUTANTS: dict[str, tuple[Rules, str]] = {
    "complete without token": (Rules(settle=complete_without_token), "a replaced owner changes nothing"),
    "renew without nonce": (Rules(renew=renew_without_nonce), "a replaced owner changes nothing"),
    "late owner refused": (Rules(settle=complete_by_token_age), "an owner that was not replaced may still settle"),
    "release still counts": (Rules(settle=release_still_counts), "only release decrements attempts"),
    "failure deletes the record": (Rules(settle=failure_deletes), "only purge deletes"),
    "blind take-over": (Rules(claim=claim_as(blind_take_over)), "at most one live owner"),
    "missing lease = free": (Rules(claim=claim_as(missing_lease_is_free)), "at most one live owner"),
    "stricter side ignored": (
        Rules(claim=claim_as(only_the_claimant_decides)),
        "an expired lease under verify is verified first",
    ),
    "PARKED = free": (Rules(claim=claim_as(parked_is_free)), "PARKED is never lost inside its window"),
    "window forgotten early": (
        Rules(claim=claim_as(window_forgotten_early)),
        "COMPLETED is never lost inside its window",
    ),
    "token reset by forget": (Rules(forget=forget_resets_token), "tokens strictly grow per ownership"),
    "forget frees a live owner": (Rules(forget=forget_frees_a_live_owner), "a refusal changes nothing"),
    "token from the clock alone": (Rules(claim=token_from_the_clock_alone), "tokens strictly grow per ownership"),
    "attempts not counted on claim": (Rules(claim=attempts_not_counted), "attempts count on claim"),
    "fingerprint compared before window over": (
        Rules(claim=fingerprint_before_window),
        "a record after its window can be claimed",
    ),
    "regrant gives a second grant": (Rules(claim=regrant_grants_again), "one claim, one grant"),
    "sliding never written": (Rules(claim=sliding_never_written), "COMPLETED is never lost inside its window"),
}


@pytest.mark.rival(1, 22)
@pytest.mark.fault("F32", "F36", "F40", "F41", "F42", "F53")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_history_breaks_a_promise_of_the_real_table(scenario: Any) -> None:
    seen = explore(scenarios=(scenario,))
    assert seen.violation is None
    assert seen.systems > 1_000, "a search that saw next to nothing shows nothing"


@pytest.mark.rival(1, 22)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_table_is_caught_by_the_promise_that_it_breaks(name: str) -> None:
    rules, promise = MUTANTS[name]
    violation = explore(rules).violation
    assert violation is not None, f"not noticed: {name}"
    assert violation.promise == promise, violation


def test_the_history_that_is_reported_is_short_enough_to_read() -> None:
    violation = explore(MUTANTS["complete without token"][0]).violation
    assert violation is not None
    assert violation.history == ("0 claims", "a lease's time passes", "1 claims", "0 sends complete")
