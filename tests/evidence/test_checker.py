"""Tests of the history checker: with generated histories whose order is known, and against brute force."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onceward.protocol.record import AfterCrash, Record
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Fail, Release, Renewal, Validity, Verdict
from onceward.testing.history import Forget, Lookup, Operation, Read, Request, assert_linearizable, check
from onceward.testing.history.check import case_of
from onceward.testing.history.operation import answer_shows, outcome, partial_record
from onceward.testing.history.search import Search
from onceward.testing.history.timeline import Timeline
from tests.evidence.brute_force import has_an_order
from tests.evidence.made_up import ID, corrupted, sequential

dice = st.integers(0, 2**32).map(Random)

# ── properties ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(dice, st.integers(1, 60))
def test_what_happened_one_after_the_other_has_an_order(dice: Random, length: int) -> None:
    assert_linearizable(sequential(dice, length))


@given(dice, st.integers(1, 40), st.integers(1, 60))
def test_what_overlaps_has_the_order_in_which_it_happened(dice: Random, length: int, stretch: int) -> None:
    assert_linearizable(sequential(dice, length, stretch=stretch))


@given(dice, st.integers(1, 12), st.integers(0, 30))
def test_what_got_no_answer_may_have_happened_or_not(dice: Random, length: int, stretch: int) -> None:
    report = check(sequential(dice, length, stretch=stretch, unanswered=0.4))
    assert not report.violations, report
    assert not report.undecided


@given(dice, st.integers(1, 40))
def test_a_wrong_answer_among_sequential_ones_is_found(dice: Random, length: int) -> None:
    right = sequential(dice, length)
    wrong = corrupted(dice, right)
    if wrong != right:  # another answer with the same record is not wrong
        [found] = check(wrong).violations
        assert {one.called for one in found.operations} <= {one.called for one in wrong}
        assert "no order explains" in found.explanation


@given(dice, st.integers(1, 5), st.sampled_from([0, 4, 12, 30]), st.sampled_from([0.0, 0.35]))
def test_the_checker_agrees_with_brute_force(dice: Random, length: int, stretch: int, unanswered: float) -> None:
    history = sequential(dice, length, stretch=stretch, unanswered=unanswered, hours=False)
    if any(one.answer is not None for one in history):
        assert has_an_order(history)
        wrong = corrupted(dice, history)
        assert check(wrong).linearizable == has_an_order(wrong)


@given(dice, st.integers(1, 20), st.integers(0, 30))
def test_the_order_that_is_found_really_explains_the_answers(dice: Random, length: int, stretch: int) -> None:
    history = sequential(dice, length, stretch=stretch, unanswered=0.2)
    order = Search(case_of(history, Timeline(history, 0), None)).run()
    assert order is not None
    assert sum(one.answer is not None for one, _ in order) == sum(one.answer is not None for one in history)
    record: Record | None = None
    for place, (one, now) in enumerate(order):
        assert all(later.returned is None or later.returned >= one.called for later, _ in order[place:])
        answer = one.answer
        steps = [outcome(before, one.request, now) for before in (record, None)]  # None: purged meanwhile
        record = next(
            after
            for after, verdict in steps
            if answer is None or (verdict is answer.verdict and answer_shows(after, one.request, answer))
        )


@settings(max_examples=15)
@given(dice)
def test_a_long_history_takes_few_questions_an_operation(dice: Random) -> None:
    history = sequential(dice, 300, stretch=12)
    assert check(history).evaluations < 20 * len(history)


# ── examples ────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_claim(nonce: bytes, lease: int = 10) -> ClaimRequest:
    return ClaimRequest(ID, "shop", "order 7", nonce, lease)


def answered(
    record: Record | None, request: Request, called: int, returned: int, now: int
) -> tuple[Operation, Record | None]:
    """Return an operation with the right answer, and the record after it."""
    after, verdict = outcome(record, request, now)
    return Operation(f"caller at {called}", request, called, returned, Answer(verdict, after, now)), after


def unanswered_call(request: Request, called: int, returned: int | None) -> Operation:
    return Operation(f"caller at {called}", request, called, returned, None, "StoreUnavailable: connection reset")


@pytest.mark.rival(18)
def test_two_concurrent_owners_have_no_order_and_the_explanation_names_them() -> None:
    one, _ = answered(None, a_claim(b"one"), 0, 50, 1_010)
    two, _ = answered(None, a_claim(b"two"), 20, 60, 1_015)
    reader, _ = answered(None, Read(ID), 70, 80, 1_030)
    report = check([one, two, reader])
    [found] = report.violations
    assert found.operations == [one, two]
    assert str(report).startswith("NOT LINEARIZABLE: 3 operations on 1 keys, 2 overlapping")
    assert (
        found.explanation.splitlines()[0]
        == "'order 7' of scope 'shop' (id 746865206b65…): no order explains these answers."
    )
    assert "After [1] there is PENDING" in found.explanation
    assert "[2] should return running, not acquired" in found.explanation
    assert "[1] was processed at 0, before the record was written" in found.explanation
    with pytest.raises(AssertionError, match="no order explains"):
        assert_linearizable([one, two, reader])


def test_reads_are_left_out_of_the_explanation() -> None:
    one, claimed = answered(None, a_claim(b"one"), 0, 50, 1_010)
    two, _ = answered(None, a_claim(b"two"), 20, 60, 1_015)
    lookers = [answered(record, Read(ID), 1, 49, 1_012)[0] for record in (None, claimed)]
    [found] = check([one, *lookers, two]).violations
    assert found.operations == [one, two]


def test_a_stale_read_is_fine_while_the_write_is_under_way_and_wrong_after_it() -> None:
    write, _ = answered(None, a_claim(b"one"), 0, 50, 1_010)
    overlapping, _ = answered(None, Read(ID), 40, 60, 1_020)
    assert check([write, overlapping]).linearizable
    after, _ = answered(None, Read(ID), 51, 60, 1_020)
    [found] = check([write, after]).violations
    assert "[1] should return ok, not absent" in found.explanation
    assert "as returned by an earlier claim of caller at 0" in found.explanation


@pytest.mark.fault("F53")
def test_a_request_without_an_answer_explains_what_others_saw() -> None:
    lost = unanswered_call(a_claim(b"lost"), 0, 10)
    _, claimed = answered(None, a_claim(b"lost"), 0, 10, 1_004)
    seen, _ = answered(claimed, Read(ID), 20, 30, 1_020)
    assert check([lost, seen]).linearizable
    assert not check([seen]).linearizable


def test_a_request_without_an_answer_takes_effect_once() -> None:
    lost = unanswered_call(Renewal(ID, 1_004, b"one", 10), 11, None)
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    _, renewed = answered(claimed, lost.request, 0, 0, 1_012)
    seen, _ = answered(renewed, Read(ID), 20, 30, 1_013)
    _, again = answered(renewed, lost.request, 0, 0, 1_015)
    twice, _ = answered(again, Read(ID), 40, 50, 1_016)
    assert check([first, lost, seen]).linearizable
    assert not check([first, lost, seen, twice]).linearizable


@pytest.mark.parametrize(("end", "explains"), [(None, True), (25, True), (15, False)])
def test_when_a_request_may_still_take_effect_depends_on_when_it_ended(end: int | None, explains: bool) -> None:
    lost = unanswered_call(a_claim(b"lost"), 0, end)
    absent, _ = answered(None, Read(ID), 20, 30, 1_010)
    _, claimed = answered(None, lost.request, 0, 0, 1_010)
    seen, _ = answered(claimed, Read(ID), 40, 50, 1_012)
    assert check([lost, absent, seen]).linearizable is explains


def test_a_request_explains_nothing_that_was_seen_before_it_was_sent() -> None:
    lost = unanswered_call(a_claim(b"lost"), 20, None)
    _, claimed = answered(None, lost.request, 0, 0, 1_010)
    seen, _ = answered(claimed, Read(ID), 0, 10, 1_010)
    assert not check([lost, seen]).linearizable


def test_an_operation_that_fits_immediately_does_not_displace_one_that_must_come_first() -> None:
    """The read finds nothing before the lost claim and after the purge; only the latter explains all answers."""
    lost = unanswered_call(a_claim(b"lost", lease=100), 0, 10)
    _, claimed = answered(None, lost.request, 0, 0, 1_004)
    released, _ = answered(claimed, Release(ID, 1_004, b"lost"), 5, 40, 1_006)
    absent, _ = answered(None, Read(ID), 20, 30, 10_000_000_000)
    assert check([lost, released, absent]).linearizable


@pytest.mark.parametrize("last", [0, 1])
def test_both_orders_of_two_changes_are_tried(last: int) -> None:
    first, claimed = answered(None, a_claim(b"one", lease=100), 0, 10, 1_004)
    renewals = [Renewal(ID, 1_004, b"one", 100, {"page": page}) for page in "ab"]
    one, two = (answered(claimed, renewal, 20, 30, 1_010)[0] for renewal in renewals)
    _, seen = answered(claimed, renewals[last], 0, 0, 1_010)
    done, _ = answered(seen, Complete(ID, 1_004, b"one"), 40, 50, 1_020)
    assert check([first, one, two, done]).linearizable


def test_an_unanswered_take_over_is_found_though_only_its_attempt_is_seen() -> None:
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    lost = unanswered_call(a_claim(b"lost"), 11, 500)
    _, taken = answered(claimed, lost.request, 0, 0, 1_020)
    third, _ = answered(taken, a_claim(b"three"), 600, 700, 1_100)
    assert third.answer is not None
    assert third.answer.record is not None
    assert third.answer.record.attempt == 3
    assert check([first, lost, third]).linearizable
    assert not check([first, third]).linearizable


def test_an_unanswered_retry_is_found_at_its_earliest_instant() -> None:
    """Nothing shows when it happened; but if it were any later, the next owner could not have taken over."""
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    failed, left = answered(claimed, Fail(ID, 1_004, b"one"), 11, 20, 1_010)
    lost = unanswered_call(a_claim(b"lost", lease=90), 21, 500)
    _, taken = answered(left, lost.request, 0, 0, 1_010)
    third, _ = answered(taken, a_claim(b"three"), 600, 700, 1_100)
    assert check([first, failed, lost, third]).linearizable


def test_an_unanswered_grant_is_found_by_the_token_in_another_unanswered_request() -> None:
    """Its owner may know the token from elsewhere; nothing else shows when it was granted."""
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    lost = unanswered_call(a_claim(b"lost", lease=1_000), 11, None)
    _, taken = answered(claimed, lost.request, 0, 0, 1_033)
    also_lost = unanswered_call(Fail(ID, 1_033, b"lost", error="no"), 20, None)
    _, failed = answered(taken, also_lost.request, 0, 0, 1_040)
    third, _ = answered(failed, a_claim(b"three"), 600, 700, 1_100)
    assert check([first, lost, also_lost, third]).linearizable


def test_an_unanswered_completion_is_found_so_late_that_its_window_still_slides() -> None:
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    lost = unanswered_call(Complete(ID, 1_004, b"one", b"it", validity=Validity(lasting=9, slide=5)), 11, 500)
    _, done = answered(claimed, lost.request, 0, 0, 1_095)
    replay, _ = answered(done, a_claim(b"two"), 600, 700, 1_100)
    assert replay.answer is not None
    assert replay.answer.verdict is Verdict.REPLAY
    assert check([first, lost, replay]).linearizable


def test_an_expired_record_may_have_been_purged_and_others_may_not() -> None:
    done = Complete(ID, 1_004, b"one", result=b"it")
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    second, _ = answered(claimed, replace(done, validity=replace(done.validity, lasting=5)), 11, 20, 1_010)
    kept, _ = answered(claimed, done, 11, 20, 1_010)
    gone, _ = answered(None, Read(ID), 30, 40, 10_000_000_000)
    assert check([first, second, gone]).linearizable
    assert not check([first, kept, gone]).linearizable


def looked_up(record: Record | None, called: int, returned: int) -> Operation:
    assert record is not None
    return Operation("looker", Lookup(ID, b""), called, returned, Answer(Verdict.REPLAY, partial_record(ID, record), 0))


def test_a_lookup_is_fine_while_the_result_is_there_and_wrong_before_and_after() -> None:
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    second, done = answered(claimed, Complete(ID, 1_004, b"one", b"it", validity=Validity(lasting=20)), 20, 30, 1_010)
    gone, _ = answered(done, Forget(ID), 40, 50, 1_015)
    assert check([first, second, gone, looked_up(done, 25, 28), looked_up(done, 32, 45)]).linearizable
    for called in (12, 60):
        [found] = check([first, second, gone, looked_up(done, called, called + 3)]).violations
        assert "looker: lookup" in found.explanation
        assert "should return absent, not replay" in found.explanation
    other = replace(done, result=b"another") if done is not None else None
    [found] = check([first, second, looked_up(other, 32, 45)]).violations
    assert "should contain result 6974, not 616e…6572" in found.explanation


def test_a_lookup_after_the_end_of_the_window_is_wrong_although_it_has_no_time() -> None:
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    second, done = answered(claimed, Complete(ID, 1_004, b"one", b"it", validity=Validity(lasting=20)), 20, 30, 1_010)
    reader, _ = answered(done, Read(ID), 40, 50, 1_030)
    assert check([first, second, reader, looked_up(done, 45, 60)]).linearizable
    assert not check([first, second, reader, looked_up(done, 51, 60)]).linearizable


def test_a_lookup_of_an_unanswered_completion_leaves_its_time_open() -> None:
    first, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    lost = unanswered_call(Complete(ID, 1_004, b"one", b"it"), 11, 15)
    _, done = answered(claimed, lost.request, 0, 0, 1_007)
    reader, _ = answered(done, Read(ID), 40, 50, 1_030)
    assert check([first, lost, looked_up(done, 20, 30)]).linearizable
    assert check([first, lost, looked_up(done, 20, 30), reader]).linearizable
    assert not check([first, looked_up(done, 20, 30)]).linearizable


@pytest.mark.fault("F44")
def test_a_clock_that_goes_back_is_reported_unless_tolerated() -> None:
    first, claimed = answered(None, a_claim(b"one", lease=100), 0, 10, 1_004)
    second, _ = answered(claimed, a_claim(b"two"), 20, 30, 1_000)
    report = check([first, second])
    assert "The store's clock went back by 4 µs" in report.violations[0].explanation
    assert report.violations[0].id is None
    assert check([first, second], tolerance=4).linearizable
    assert check([first, second], tolerance=None).linearizable


def test_a_change_is_not_judged_by_a_time_before_the_last_one() -> None:
    """Although the calls overlap: a store that waits for a lock must read the clock afterwards."""
    first, claimed = answered(None, a_claim(b"one", lease=100), 0, 10, 1_004)
    assert claimed is not None
    early, renewed = answered(claimed, Renewal(ID, claimed.token, b"one", 100, {"page": "1"}), 11, 50, 1_020)
    stale, _ = answered(renewed, Renewal(ID, claimed.token, b"one", 90), 11, 50, 1_010)
    [found] = check([first, early, stale]).violations
    assert "[2] was processed at 6, before the record was written" in found.explanation


def test_a_refusal_may_have_read_the_record_first_and_the_clock_later() -> None:
    first, claimed = answered(None, a_claim(b"one", lease=100), 0, 10, 1_004)
    refused, _ = answered(claimed, a_claim(b"two"), 11, 50, 1_030)
    done, _ = answered(claimed, Complete(ID, 1_004, b"one", result=b"it"), 11, 40, 1_020)
    assert refused.answer is not None
    assert refused.answer.verdict is Verdict.RUNNING
    assert check([first, refused, done]).linearizable


def test_keys_are_judged_each_by_itself_and_a_start_may_be_given() -> None:
    one, claimed = answered(None, a_claim(b"one"), 0, 10, 1_004)
    other, _ = answered(None, replace(a_claim(b"two"), id=b"another key"), 0, 10, 1_004)
    assert check([one, other]).keys == 2
    seen, _ = answered(claimed, Read(ID), 20, 30, 1_020)
    assert claimed is not None
    assert check([seen], start={ID: claimed}).linearizable
    assert not check([seen]).linearizable


def test_a_search_that_takes_too_long_says_neither_yes_nor_no() -> None:
    history = sequential(Random(7), 40, stretch=12)
    report = check(history, budget=10)
    assert not report.linearizable
    assert not report.violations
    assert report.undecided == [ID]
    assert str(report).startswith("UNDECIDED")
    with pytest.raises(AssertionError, match="undecided within the budget"):
        assert_linearizable(history, budget=10)


def test_of_a_long_history_only_the_operations_that_matter_are_reported() -> None:
    history, record = [], None
    for number in range(300):  # a hundred owners, each seen by others and handing over
        nonce = b"%d" % (number // 3)
        at = 1_000 + 20 * number
        request = (a_claim(nonce, 50), Read(ID), Complete(ID, 0 if record is None else record.token, nonce))[number % 3]
        if isinstance(request, Complete):
            request = replace(request, validity=replace(request.validity, lasting=1))
        operation, record = answered(record, request, at, at + 10, at)
        history.append(operation)
    assert record is not None
    assert check(history).linearizable
    wrong = replace(history[150], answer=Answer(Verdict.REPLAY, record, 1_000 + 20 * 150))
    [found] = check([*history[:150], wrong, *history[151:]]).violations
    assert found.operations == [wrong]
    assert "answer 151 in a history of 300 operations" in found.explanation


def test_a_takeover_of_a_live_lease_is_explained_in_two_lines() -> None:
    first, claimed = answered(None, a_claim(b"one", lease=1_000), 0, 10, 1_004)
    assert claimed is not None
    taken = replace(claimed, token=1_020, nonce=b"two", attempt=2, claimed_at=1_020, updated_at=1_020, renewed_at=1_020)
    request = replace(a_claim(b"two"), after_crash=AfterCrash.RERUN)
    thief = Operation("thief", request, 20, 30, Answer(Verdict.ACQUIRED, replace(taken, lease_until=1_030), 1_020))
    [found] = check([first, thief]).violations
    assert found.operations == [thief]
    before = "PENDING token 0, nonce 6f6e65, attempt 1, updated_at 0, lease_until 1,000"
    after = "PENDING token 16, nonce 74776f, attempt 2, updated_at 16, lease_until 26"
    assert found.explanation.splitlines()[2:] == [
        f"  At first there was {before}, as returned by an earlier claim of caller at 0.",
        f"  [1] thief: claim (nonce 74776f, lease 10), 0 to 0 µs: acquired at 16, {after}",
        "  From this state:",
        "    [1] should return running, not acquired",
    ]
