"""Rules 5 to 8 of the protocol, each as a short history of one key: attempts, tokens, cycles and windows."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Complete, Fail, Park, Release, Resolution, Validity, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN, purgeable
from onceward.protocol.window import calendar, lasting, sliding
from tests.unit.key_history import HOUR, LEASE, NOON, SECOND, Key

VERIFY, PARK = AfterCrash.VERIFY, AfterCrash.PARK


# ── failures ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("late", [0, LEASE])
def test_the_last_attempt_allowed_fails_for_good_however_late(late: int) -> None:
    key = Key()
    grant = key.claim(b"a", max_attempts=1)
    key.now += late
    failed = key.settle(Fail, grant, max_attempts=1, validity=Validity(lasting=HOUR))
    assert (failed.state, failed.final, failed.retry_at) == (RecordState.FAILED, True, None)
    assert failed.valid_until == key.now + HOUR


@pytest.mark.fault("F23")
def test_an_attempt_before_the_last_fails_until_it_is_due() -> None:
    key = Key()
    failed = key.settle(Fail, key.claim(b"a"), max_attempts=2, retry_in=SECOND, error_type="OSError", error="no route")
    assert (failed.final, failed.retry_at, failed.valid_until) == (
        False,
        NOON + SECOND,
        NOON + SECOND + KEEP_UNFINISHED,
    )
    answer = key.claim(b"b", Verdict.FAILED)
    assert (answer.error_type, answer.error) == ("OSError", "no route")
    key.now += SECOND
    assert key.claim(b"b").valid_until is None
    done = key.settle(Complete, key.is_)
    assert (done.error_type, done.error) == ("", "")


def test_the_claimants_own_limit_of_attempts_counts_not_an_earlier_ones() -> None:
    key = Key()
    key.claim(b"a", max_attempts=1)
    key.now += LEASE
    assert key.claim(b"b", max_attempts=2).max_attempts == 2
    key.settle(Fail, key.is_)
    key.claim(b"c", Verdict.FAILED, max_attempts=2)
    key.claim(b"c", Verdict.ACQUIRED)
    key.now += LEASE
    key.claim(b"d", Verdict.PARKED, max_attempts=3)


def test_under_verify_a_failure_counts_as_such_only_once_not_applied_is_known() -> None:
    for known, state in ((True, RecordState.FAILED), (False, RecordState.PARKED)):
        key = Key()
        key.claim(b"a", after_crash=VERIFY)
        key.now += LEASE
        grant = key.claim(b"b", after_crash=VERIFY)
        expected = Verdict.OK if known else Verdict.PARKED
        assert key.settle(Fail, grant, expected, known=known).state is state


@pytest.mark.parametrize("kind", [Complete, Fail])
def test_what_was_asked_for_is_answered_once_the_attempt_is_settled(kind: type[Any]) -> None:
    key = Key()
    key.claim(b"a", after_crash=VERIFY)
    key.now += LEASE
    settings: dict[str, Any] = {} if kind is Complete else {"known": True}
    assert not key.settle(kind, key.claim(b"b"), **settings).ask_first


# ── rule 5: the token ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(22)
@pytest.mark.fault("F44", "F68")
def test_the_token_grows_with_every_ownership_also_when_the_clock_is_set_back() -> None:
    key = Key()
    tokens = [key.claim(b"a").token]
    assert tokens == [NOON]
    key.settle(Release, key.is_)
    key.now -= HOUR
    tokens.append(key.claim(b"b").token)
    key.settle(Complete, key.is_)
    key.now -= HOUR
    key.forget()
    tokens.append(key.is_.token)
    tokens.append(key.claim(b"c").token)
    assert tokens == [NOON, NOON + 1, NOON + 2, NOON + 3]
    key.now = NOON + HOUR
    key.forget(force=True)
    assert key.is_.token == NOON + HOUR


@pytest.mark.rival(22)
@pytest.mark.fault("F66")
def test_the_token_grows_across_a_purge_unless_the_clock_is_set_back_beyond_the_margin() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.settle(Release, grant)
    key.now += CLOCK_MARGIN
    assert not purgeable(key.is_, key.now)
    key.now += 1
    assert purgeable(key.is_, key.now)
    key.record = None
    key.now -= CLOCK_MARGIN
    assert key.claim(b"b").token > grant.token


# ── rule 7: the cycle ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_cycle_lasts_through_failures_lapses_releases_and_resolutions() -> None:
    key = Key()
    cycle = key.claim(b"a").cycle
    key.settle(Fail, key.is_)
    key.claim(b"b")
    key.now += LEASE
    key.claim(b"c")
    key.settle(Release, key.is_)
    key.claim(b"d")
    key.resolve(key.settle(Park, key.is_).token, Resolution.NOT_APPLIED)
    last = key.claim(b"e")
    assert (last.cycle, last.attempt) == (cycle, 4)


def test_the_cycle_lasts_when_an_attempt_granted_by_an_operator_is_released() -> None:
    """An earlier attempt may have called a remote system with its derived key: the next must still use the same one."""
    key = Key()
    cycle = key.claim(b"a", max_attempts=1).cycle
    key.now += LEASE
    parked = key.claim(b"b", Verdict.PARKED, max_attempts=1)
    key.resolve(parked.token, Resolution.NOT_APPLIED)
    again = key.claim(b"c", max_attempts=1)
    released = key.settle(Release, again)
    assert (released.state, released.attempt) == (RecordState.FAILED, 0)
    last = key.claim(b"d", max_attempts=1)
    assert (last.cycle, last.attempt) == (cycle, 1)


def test_a_new_cycle_begins_after_the_window_and_after_forget() -> None:
    key = Key()
    cycles = [key.claim(b"a").cycle]
    key.settle(Complete, key.is_, validity=Validity(lasting=HOUR))
    key.now += HOUR
    cycles.append(key.claim(b"b").cycle)
    key.forget(force=True)
    cycles.append(key.claim(b"c").cycle)
    key.settle(Fail, key.is_)
    key.now += KEEP_UNFINISHED
    cycles.append(key.claim(b"d").cycle)
    assert sorted(set(cycles)) == cycles


@pytest.mark.mission("A3")
def test_notes_and_the_age_survive_a_take_over_and_end_with_the_cycle() -> None:
    key = Key()
    born = key.claim(b"a", note={"path": "a.pdf"}, arguments={"x": "1"}).created_at
    key.now += LEASE
    taken = key.claim(b"b", note={"page": "7"}, arguments={"x": "2"})
    assert taken.arguments == {"x": "1"}
    assert (taken.created_at, taken.note) == (born, {"path": "a.pdf", "page": "7"})
    key.forget(force=True)
    assert key.claim(b"c").note == {}
    assert key.is_.created_at == key.now


# ── rule 8: windows ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(26)
@pytest.mark.mission("C1")
def test_a_lasting_window_counts_from_completion() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += LEASE // 2
    done = key.settle(Complete, grant, validity=lasting("1h").validity(grant.claimed_at))
    assert done.valid_until == key.now + HOUR
    key.now += HOUR - 1
    key.claim(b"b", Verdict.REPLAY)
    key.now += 1
    key.claim(b"b", Verdict.ACQUIRED)


@pytest.mark.mission("C6")
def test_a_window_since_the_attempt_counts_from_the_claim_also_for_a_final_failure() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += LEASE // 2
    window = lasting("1h", since="attempt").validity(grant.claimed_at)
    assert key.settle(Fail, grant, final=True, validity=window).valid_until == NOON + HOUR


def test_a_final_failure_never_slides() -> None:
    key = Key()
    failed = key.settle(Fail, key.claim(b"a"), final=True, validity=sliding("8h").validity(NOON))
    key.now += 7 * HOUR
    assert key.claim(b"b", Verdict.FAILED) is failed


def test_a_final_failure_answers_for_the_window_from_the_failure() -> None:
    key = Key()
    grant = key.claim(b"a")
    key.now += LEASE // 2
    key.settle(Fail, grant, final=True, validity=lasting("1h").validity(grant.claimed_at))
    key.now += HOUR - 1
    key.claim(b"b", Verdict.FAILED)
    key.now += 1
    assert key.claim(b"b").attempt == 1


def test_a_calendar_window_is_stored_as_the_instant_after_the_claim_however_late_the_completion() -> None:
    key = Key()
    grant = key.claim(b"a")
    end = calendar("UTC").validity(grant.claimed_at)
    key.now += HOUR
    assert key.settle(Complete, grant, validity=end).valid_until == end.until


def test_a_sliding_window_moves_with_each_question_but_is_written_only_after_an_eighth() -> None:
    key = Key()
    done = key.settle(Complete, key.claim(b"a"), validity=sliding("8h").validity(NOON))
    key.now = NOON + HOUR - 1
    assert key.claim(b"b", Verdict.REPLAY) is done
    key.now = NOON + HOUR
    assert key.claim(b"b", Verdict.REPLAY).valid_until == NOON + 9 * HOUR
    key.now = NOON + 9 * HOUR - 1
    assert key.claim(b"b", Verdict.REPLAY).valid_until == NOON + 17 * HOUR - 1
    key.now = NOON + 17 * HOUR - 1
    key.claim(b"b", Verdict.ACQUIRED)


@pytest.mark.parametrize("after_crash", [VERIFY, PARK])
def test_what_is_unknown_never_expires_by_itself(after_crash: AfterCrash) -> None:
    key = Key()
    grant = key.claim(b"a", after_crash=after_crash)
    centuries = key.now + 1_000 * KEEP_UNFINISHED
    assert not purgeable(key.is_, centuries)
    parked = key.settle(Park, grant)
    assert not purgeable(parked, centuries)
    key.now = centuries
    assert key.claim(b"b", Verdict.PARKED) is parked
