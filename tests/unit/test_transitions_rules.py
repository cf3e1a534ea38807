"""Rules 1 to 4 of the protocol, each as a short history of one key: which caller may claim, settle and resolve."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import NO_OWNER, READER, AfterCrash, RecordState
from onceward.protocol.requests import Complete, ExpectedRecord, Fail, Park, Release, Resolution, Validity, Verdict
from tests.unit.key_history import HOUR, LEASE, Key

VERIFY, PARK = AfterCrash.VERIFY, AfterCrash.PARK


# ── rule 1: the order of a claim's checks ───────────────────────────────────────────────────────────────────────


def test_a_newer_layout_is_left_alone_even_by_its_own_nonce_and_even_when_over() -> None:
    key = Key()
    grant = key.claim(b"a")
    done = key.settle(Complete, grant, validity=Validity(lasting=1))
    key.record = replace(done, min_reader=READER + 1)
    key.now += 1
    assert key.claim(b"a", Verdict.SKEW) is key.claim(b"b", Verdict.SKEW)


@pytest.mark.fault("F53")
def test_the_own_nonce_is_recognised_before_the_window_counts_as_over() -> None:
    key = Key()
    key.settle(Complete, key.claim(b"a"), validity=Validity(lasting=1))
    key.now += 1
    key.claim(b"a", Verdict.REPLAY)


def test_the_own_nonce_is_recognised_before_its_fingerprint() -> None:
    key = Key()
    key.claim(b"a", fingerprint=b"\x01x")
    key.claim(b"a", fingerprint=b"\x01y")


def test_the_window_is_judged_before_the_fingerprint_and_the_fingerprint_before_the_state() -> None:
    key = Key()
    key.settle(Complete, key.claim(b"a", fingerprint=b"\x01x"), validity=Validity(lasting=HOUR))
    key.claim(b"b", Verdict.MISMATCH, fingerprint=b"\x01y")
    key.now += HOUR
    key.claim(b"b", Verdict.ACQUIRED, fingerprint=b"\x01y")
    key.claim(b"c", Verdict.MISMATCH, fingerprint=b"\x01x")


@pytest.mark.rival(5)
def test_the_fingerprint_survives_failure_and_take_over() -> None:
    key = Key()
    key.settle(Fail, key.claim(b"a", fingerprint=b"\x01x"))
    key.claim(b"b")  # gives no fingerprint: the stored one stays
    key.now += LEASE
    key.claim(b"c", Verdict.MISMATCH, fingerprint=b"\x01y")
    key.claim(b"c", Verdict.ACQUIRED, fingerprint=b"\x01x")


# ── own nonce ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(20)
@pytest.mark.fault("F53")
def test_a_claim_repeated_after_a_lost_reply_gets_the_same_grant_and_no_longer_lease() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += LEASE - 1
    assert key.claim(b"a") is grant


def test_a_claim_repeated_after_the_lapse_is_alive_again_with_the_same_token_and_still_asks_first() -> None:
    key = Key()
    key.claim(b"a", after_crash=VERIFY)
    key.now += LEASE
    grant = key.claim(b"b", after_crash=VERIFY)
    assert grant.ask_first
    key.now += LEASE
    again = key.claim(b"b", after_crash=VERIFY)
    assert (again.token, again.attempt, again.ask_first) == (grant.token, grant.attempt, True)
    assert again.lease_until == key.now + LEASE


@pytest.mark.parametrize("kind", [Fail, Park, Release])
def test_a_claim_delivered_again_after_its_owner_has_settled_acquires_nothing(kind: type[Any]) -> None:
    key = Key()
    key.settle(kind, key.claim(b"a"))
    key.claim(b"a", Verdict.SETTLED)


# ── rule 2: release, forget, resolve ────────────────────────────────────────────────────────────────────────────


def test_a_released_first_attempt_leaves_the_key_free_with_its_token() -> None:
    key = Key()
    grant = key.claim(b"a")
    free = key.settle(Release, grant)
    assert (free.state, free.token, free.attempt) == (RecordState.FREE, grant.token, 0)
    assert key.settle(Release, grant) is free
    assert key.claim(b"b").attempt == 1


def test_a_released_later_attempt_is_not_counted_and_due_immediately() -> None:
    key = Key()
    key.settle(Fail, key.claim(b"a", max_attempts=2), max_attempts=2)
    grant = key.claim(b"b", max_attempts=2)
    released = key.settle(Release, grant)
    assert (released.state, released.attempt, released.final, released.retry_at) == (
        RecordState.FAILED,
        1,
        False,
        key.now,
    )
    assert key.settle(Release, grant) is released
    assert key.claim(b"c", max_attempts=2).attempt == 2


def test_a_released_attempt_that_had_to_ask_first_leaves_the_question_to_the_next() -> None:
    key = Key()
    key.claim(b"a", after_crash=VERIFY)
    key.now += LEASE
    grant = key.claim(b"b", after_crash=VERIFY)
    released = key.settle(Release, grant)
    assert (released.state, released.attempt) == (RecordState.PENDING, 1)
    assert key.settle(Release, grant) is released
    key.claim(b"b", Verdict.SETTLED)
    key.settle(Complete, grant, Verdict.LOST)
    following = key.claim(b"c")
    assert (following.ask_first, following.attempt) == (True, 2)


def test_forget_invalidates_every_earlier_owner() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.forget(force=True)
    assert (key.is_.state, key.is_.nonce) == (RecordState.FREE, NO_OWNER)
    assert key.is_.token > grant.token
    for kind in (Complete, Fail, Park, Release):
        key.settle(kind, grant, Verdict.LOST)
    key.renew(grant, Verdict.LOST)


@pytest.mark.parametrize(
    ("how", "state", "final", "next_claim"),
    [
        (Resolution.APPLIED, RecordState.COMPLETED, False, Verdict.REPLAY),
        (Resolution.NOT_APPLIED, RecordState.FAILED, False, Verdict.ACQUIRED),
        (Resolution.ABANDON, RecordState.FAILED, True, Verdict.FAILED),
    ],
)
def test_an_operator_resolves_a_parked_record_and_the_late_owner_is_refused(
    how: Resolution, state: RecordState, final: bool, next_claim: Verdict
) -> None:
    key = Key()
    grant = key.claim(b"a")
    parked = key.settle(Park, grant)
    key.now += 1
    resolved = key.resolve(parked.token, how, result=b"42", digest=b"d", validity=Validity(lasting=HOUR))
    assert (resolved.state, resolved.final, resolved.nonce) == (state, final, NO_OWNER)
    assert resolved.token > parked.token
    assert (resolved.cycle, resolved.attempt) == (parked.cycle, 1)
    assert resolved.retry_at == (key.now if how is Resolution.NOT_APPLIED else None)
    assert resolved.valid_until == key.now + (KEEP_UNFINISHED if how is Resolution.NOT_APPLIED else HOUR)
    key.settle(Complete, grant, Verdict.LOST)
    key.claim(b"b", next_claim)


def test_resolving_holds_only_for_the_token_that_was_seen_and_only_while_parked() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.resolve(grant.token, Resolution.APPLIED, Verdict.LOST)
    parked = key.settle(Park, grant)
    key.resolve(parked.token - 1, Resolution.APPLIED, Verdict.LOST)
    assert key.resolve(parked.token + 1, Resolution.APPLIED, Verdict.LOST) is parked
    key.resolve(parked.token, Resolution.APPLIED)
    key.resolve(parked.token, Resolution.ABANDON, Verdict.LOST)


def test_resolved_as_not_applied_is_due_now_even_if_all_attempts_were_used() -> None:
    key = Key()
    key.claim(b"a", max_attempts=1)
    key.now += LEASE
    parked = key.claim(b"b", Verdict.PARKED, max_attempts=1)
    assert parked.error_type == "AttemptsUsedUp"
    key.resolve(parked.token, Resolution.NOT_APPLIED)
    key.claim(b"c", Verdict.ACQUIRED, max_attempts=1)


def test_an_operator_may_resolve_an_expired_attempt_and_a_live_one_only_by_force() -> None:
    key = Key()
    grant = key.claim(b"a")
    seen: dict[str, Any] = {"state_seen": RecordState.PENDING}
    assert key.resolve(grant.token, Resolution.NOT_APPLIED, Verdict.REFUSED, **seen) is grant
    key.now += LEASE
    key.resolve(grant.token - 1, Resolution.NOT_APPLIED, Verdict.LOST, **seen)
    key.renew(grant)  # renewed after all, before the operator decided
    key.resolve(grant.token, Resolution.NOT_APPLIED, Verdict.REFUSED, **seen)
    cut_off = key.resolve(grant.token, Resolution.NOT_APPLIED, **seen, force=True)
    assert (cut_off.state, cut_off.final, cut_off.lease_until) == (RecordState.FAILED, False, None)
    assert (cut_off.cycle, cut_off.attempt, cut_off.error_type) == (grant.cycle, 1, "Released")
    assert cut_off.token > grant.token
    for kind in (Complete, Fail, Park, Release):
        key.settle(kind, grant, Verdict.LOST)
    assert key.claim(b"b").attempt == 2


def test_a_late_owner_that_completes_before_the_operator_resolves_keeps_its_result() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += LEASE
    done = key.settle(Complete, grant)
    assert done.token == grant.token
    key.resolve(grant.token, Resolution.NOT_APPLIED, Verdict.LOST, state_seen=RecordState.PENDING)
    key.forget(Verdict.LOST, seen=ExpectedRecord(grant.token, RecordState.PENDING))
    assert key.is_ is done
    key.resolve(
        grant.token, Resolution.NOT_APPLIED, Verdict.LOST, state_seen=RecordState.COMPLETED
    )  # there is no way back


@pytest.mark.parametrize("final", [True, False])
def test_a_failure_that_was_seen_is_made_due_now_in_the_same_cycle(final: bool) -> None:
    key = Key()
    grant = key.claim(b"a", max_attempts=1)
    failed = key.settle(Fail, grant, final=final, retry_in=HOUR, note={"page": "3"})
    key.resolve(failed.token, Resolution.NOT_APPLIED, Verdict.LOST)  # which was seen parked, they say
    key.resolve(failed.token, Resolution.NOT_APPLIED, state_seen=RecordState.FAILED)
    again = key.claim(b"b", max_attempts=1)
    assert (again.cycle, again.note) == (grant.cycle, {"page": "3"})


def test_what_became_another_record_since_it_was_seen_is_not_forgotten() -> None:
    key = Key()
    grant = key.claim(b"a")
    failed = key.settle(Fail, grant)
    shown = ExpectedRecord(failed.token, RecordState.FAILED)
    again = key.claim(b"b")
    key.forget(Verdict.LOST, seen=shown, force=True)
    assert key.is_ is again
    key.forget(Verdict.REFUSED, seen=ExpectedRecord(again.token, RecordState.PENDING))
    key.forget(seen=ExpectedRecord(again.token, RecordState.PENDING), force=True)
    assert key.is_.state is RecordState.FREE
    key.forget(seen=shown)  # free already, which is what was wanted


# ── rule 3: the stricter of record and claimant ─────────────────────────────────────────────────────────────────


@pytest.mark.fault("F30")
@pytest.mark.parametrize("claimant", AfterCrash)
@pytest.mark.parametrize("stored", AfterCrash)
def test_on_a_lapse_the_stricter_of_record_and_claimant_holds(stored: AfterCrash, claimant: AfterCrash) -> None:
    key = Key()
    grant = key.claim(b"a", after_crash=stored)
    assert grant.after_crash is stored
    key.now += LEASE
    if PARK in (stored, claimant):
        parked = key.claim(b"b", Verdict.PARKED, after_crash=claimant)
        assert (parked.state, parked.token, parked.nonce) == (RecordState.PARKED, grant.token, grant.nonce)
    else:
        taken = key.claim(b"b", after_crash=claimant)
        assert taken.ask_first == (VERIFY in (stored, claimant))
        assert taken.after_crash is max(stored, claimant)


def test_verify_is_asked_however_many_attempts_were_used() -> None:
    key = Key()
    key.claim(b"a", after_crash=VERIFY, max_attempts=1)
    key.now += LEASE
    assert key.claim(b"b", after_crash=VERIFY, max_attempts=1).ask_first


# ── rule 4: the late owner ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.fault("F32")
@pytest.mark.parametrize(
    ("kind", "state"), [(Complete, RecordState.COMPLETED), (Fail, RecordState.FAILED), (Park, RecordState.PARKED)]
)
def test_a_late_owner_that_was_not_replaced_may_still_settle(kind: type[Any], state: RecordState) -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += 100 * LEASE
    assert key.settle(kind, grant).state is state


@pytest.mark.fault("F32")
def test_a_late_owner_may_renew_and_is_alive_again() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += 2 * LEASE
    key.renew(grant)
    key.claim(b"b", Verdict.RUNNING)


@pytest.mark.rival(1)
@pytest.mark.fault("F32", "F40", "F41")
def test_a_late_owner_that_was_replaced_changes_nothing() -> None:
    key = Key()
    late = key.claim(b"a")
    key.now += LEASE
    winner = key.claim(b"b")
    key.claim(b"c", Verdict.RUNNING)
    for kind in (Complete, Fail, Park, Release):
        assert key.settle(kind, late, Verdict.LOST) is winner
    assert key.renew(late, Verdict.LOST) is winner


def test_the_late_owner_of_what_was_parked_meanwhile_may_say_that_it_is_done() -> None:
    key = Key()
    grant = key.claim(b"a", after_crash=PARK)
    key.now += LEASE
    key.claim(b"b", Verdict.PARKED)
    key.settle(Fail, grant, Verdict.LOST)
    assert key.settle(Complete, grant).state is RecordState.COMPLETED


@pytest.mark.parametrize("kind", [Complete, Fail, Park, Release])
def test_settling_twice_with_the_same_content_is_fine(kind: type[Any]) -> None:
    key = Key()
    grant = key.claim(b"a")
    once = key.settle(kind, grant)
    key.now += 1
    assert key.settle(kind, grant) is once
