"""The next move for every possible journal: the pure half of sagas, explored exhaustively and at random."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onceward import NotAcquired, verify
from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.protocol.note import SAGA
from onceward.protocol.requests import Resolution
from onceward.sagas import Step, StepContext
from onceward.sagas.decisions import SagaDecision, resolve_open_step, retry_open_step
from onceward.sagas.definition import Plan, StepKind, plan_of
from onceward.sagas.journal import (
    Compensate,
    Direction,
    Do,
    Finished,
    Journal,
    JournalEntry,
    ParkSaga,
    StepProgress,
    Undo,
    VerifyStep,
    attempt_failed,
    compensating,
    incompatibility,
    journal_from,
    next_move,
    note_of,
    step_begun,
    step_done,
    step_not_done,
    step_undoing,
    step_undone,
    without_results,
)


def perform(step: StepContext) -> None: ...


PLAN = plan_of(
    "s",
    [
        Step("a", perform, undo=perform, max_attempts=2, undo_attempts=2),
        Step("b", perform, undo=perform, max_attempts=2, undo_attempts=2, after_crash=verify(perform)),
        Step("p", perform, kind="pivot", max_attempts=2),
        Step("r", perform, kind="retriable", max_attempts=2),
    ],
)
GONE = (StepProgress.UNDONE, StepProgress.NOT_DONE)


def after(plan: Plan, journal: Journal) -> Iterator[Journal]:
    """Return every journal that one move may lead to: whatever the step does, and also if its owner dies."""
    match next_move(plan, journal):
        case Do(number):
            name = plan[number].name
            intent = step_begun(journal, plan[number], 1)
            yield intent  # its owner died, or the exception says nothing about the effect
            yield step_done(intent, name, b"x")
            yield step_not_done(intent, name, "Final", "", final=True)
            if not intent.entries[-1].unsure:
                yield step_not_done(intent, name, "Trouble", "")
        case VerifyStep(number):
            yield step_done(journal, plan[number].name, b"x")
            yield step_not_done(journal, plan[number].name, "NotApplied", "")
        case Compensate():
            yield compensating(journal, "Final", "")
        case Undo(number):
            intent = step_undoing(journal, plan[number].name, 1)
            yield intent
            yield step_undone(intent, plan[number].name)
        case ParkSaga():
            for resolution in Resolution:
                with suppress(NotAcquired):
                    yield resolve_open_step(journal, resolution, b"x").journal or journal
            yield retry_open_step(journal).journal or journal
        case Finished():
            return


def reachable(plan: Plan) -> set[Journal]:
    start = Journal(cycle=1)
    seen, waiting = {start}, deque([start])
    while waiting:
        for found in after(plan, waiting.popleft()):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return seen


@pytest.fixture(scope="module")
def journals() -> set[Journal]:
    return reachable(PLAN)


def test_whatever_happens_the_journal_keeps_its_promises(journals: set[Journal]) -> None:
    assert len(journals) > 300
    for journal in journals:
        assert not incompatibility(PLAN, journal)
        names = [entry.name for entry in journal.entries]
        progress = {entry.name: entry.progress for entry in journal.entries}
        undone_some = any(one in (StepProgress.UNDOING, StepProgress.UNDONE) for one in progress.values())
        if undone_some:
            assert journal.direction is Direction.COMPENSATING, "an undo before the direction"
        if journal.direction is Direction.COMPENSATING:
            assert "r" not in names, "behind the pivot there is no way back"
            assert progress.get("p", StepProgress.NOT_DONE) is StepProgress.NOT_DONE, "nor is there from the pivot"
        if journal.direction is Direction.FORWARD:
            assert all(one is StepProgress.DONE for one in list(progress.values())[:-1]), "two steps at the same time"


def test_the_next_move_never_breaks_a_promise(journals: set[Journal]) -> None:
    for journal in journals:
        entries = {entry.name: entry for entry in journal.entries}
        match next_move(PLAN, journal):
            case Undo(number):
                assert PLAN[number].name in entries, "a step is undone that was never begun"
                assert PLAN[number].kind is StepKind.COMPENSATABLE
                assert entries[PLAN[number].name].progress in (StepProgress.DONE, StepProgress.UNDOING)
                later = [entries[step.name].progress for step in PLAN[number + 1 :] if step.name in entries]
                assert all(one in GONE for one in later), "something newer is not undone, or not settled"
            case Do(number):
                entry = entries.get(PLAN[number].name)
                assert entry is None or entry.attempts < PLAN[number].max_attempts
                if journal.direction is Direction.COMPENSATING:
                    assert entry is not None, "a step is begun on the way back"
                    assert entry.progress is StepProgress.BEGUN, "a step is done again that is settled"
            case Finished(undone=True):
                assert all(entry.progress in GONE for entry in journal.entries)
            case Finished(undone=False):
                assert [entry.progress for entry in journal.entries] == [StepProgress.DONE] * len(PLAN)
            case Compensate(number):
                assert PLAN[number].kind is not StepKind.RETRIABLE
                assert entries[PLAN[number].name].progress is StepProgress.NOT_DONE, (
                    "it turns before the step is settled"
                )
            case VerifyStep(number):
                assert entries[PLAN[number].name].progress is StepProgress.BEGUN


def test_every_journal_leads_to_an_end_or_to_a_person(journals: set[Journal]) -> None:
    """If no owner dies and nothing fails any more, every saga ends."""
    for journal in journals:
        now, moves = journal, 0
        while not isinstance(move := next_move(PLAN, now), Finished | ParkSaga):
            moves += 1
            assert moves < 30
            match move:
                case Do(number):
                    now = step_done(step_begun(now, PLAN[number], 1), PLAN[number].name, b"x")
                case VerifyStep(number):
                    now = step_done(now, PLAN[number].name, b"x")
                case Compensate():
                    now = compensating(now, "", "")
                case Undo(number):
                    now = step_undone(step_undoing(now, PLAN[number].name, 1), PLAN[number].name)


def test_an_intent_without_a_result_is_settled_before_anything_else(journals: set[Journal]) -> None:
    for journal in journals:
        unsettled = [entry.name for entry in journal.entries if entry.progress is StepProgress.BEGUN]
        if not unsettled:
            continue
        move = next_move(PLAN, journal)
        assert isinstance(move, Do | VerifyStep | ParkSaga)
        assert PLAN[move.step].name == unsettled[0]


def test_a_step_that_can_neither_be_repeated_nor_verified_is_parked_immediately() -> None:
    plan = plan_of("s", [Step("a", perform, undo=perform, after_crash="park")])
    intent = step_begun(Journal(cycle=1), plan[0], 1)
    move = next_move(plan, intent)
    assert isinstance(move, ParkSaga)
    assert move.error_type == "Unsettled"
    assert "its worker stopped responding" in move.why
    parked = next_move(plan, attempt_failed(intent, "a", "ConnectionError", "reset"))
    assert isinstance(parked, ParkSaga)
    assert "ConnectionError: reset" in parked.why


# ── what an operator decides ──


def test_an_operator_resolves_the_step_that_blocks_the_saga() -> None:
    journal = step_begun(step_done(step_begun(Journal(cycle=1), PLAN[0], 1), "a", b"1"), PLAN[1], 1)
    assert journal.open_step is not None
    assert journal.open_step.name == "b"
    known = resolve_open_step(journal, Resolution.APPLIED, b"2").journal
    assert known is not None
    assert next_move(PLAN, known) == Do(2)
    not_there = resolve_open_step(journal, Resolution.NOT_APPLIED).journal
    assert not_there is not None
    assert next_move(PLAN, not_there) == Do(1)
    given_up = resolve_open_step(journal, Resolution.ABANDON).journal
    assert given_up is not None
    assert given_up.direction is Direction.COMPENSATING
    assert next_move(PLAN, given_up) == VerifyStep(1), "settled first, and only then undone"


def test_a_pivot_that_may_be_done_cannot_be_abandoned() -> None:
    plan = plan_of("s", [Step("p", perform, kind="pivot", after_crash="park")])
    unknown = step_begun(Journal(cycle=1), plan[0], 1)
    with pytest.raises(NotAcquired, match="cannot be undone"):
        resolve_open_step(unknown, Resolution.ABANDON)


def test_a_person_may_have_undone_it_by_hand_or_leave_it_as_it_is() -> None:
    stuck = step_undoing(compensating(step_done(step_begun(Journal(cycle=1), PLAN[0], 1), "a", b"1"), "E", ""), "a", 1)
    by_hand = resolve_open_step(stuck, Resolution.APPLIED).journal
    assert by_hand is not None
    assert next_move(PLAN, by_hand) == Finished(undone=True)
    again = resolve_open_step(stuck, Resolution.NOT_APPLIED).journal
    assert again is not None
    assert next_move(PLAN, again) == Undo(0)
    assert resolve_open_step(stuck, Resolution.ABANDON).over


def test_a_person_gives_up_between_two_steps_and_what_was_done_is_undone() -> None:
    between = step_done(step_begun(Journal(cycle=1), PLAN[0], 1), "a", b"1")
    assert between.open_step is None
    decision = resolve_open_step(between, Resolution.ABANDON)
    assert not decision.over
    assert decision.journal is not None
    assert next_move(PLAN, decision.journal) == Undo(0)
    back = compensating(between, "E", "")
    assert resolve_open_step(back, Resolution.ABANDON) == SagaDecision(back), "it is being undone"
    pivoted = replace(between, entries=(*between.entries, JournalEntry("p", StepProgress.DONE, 1, StepKind.PIVOT)))
    assert resolve_open_step(pivoted, Resolution.ABANDON).over, "there is no way back any more"


def test_retry_gives_all_attempts_again_and_lets_what_was_undone_begin_anew() -> None:
    used_up = replace(
        step_begun(Journal(cycle=1), PLAN[0], 1), entries=(JournalEntry("a", StepProgress.BEGUN, 1, attempts=2),)
    )
    assert isinstance(next_move(PLAN, used_up), ParkSaga)
    again = retry_open_step(used_up).journal
    assert again is not None
    assert next_move(PLAN, again) == Do(0)
    gone = compensating(step_not_done(step_begun(Journal(cycle=1), PLAN[0], 1), "a", "E", "", final=True), "E", "")
    assert gone.undone
    assert retry_open_step(gone).journal is None
    assert retry_open_step(Journal(cycle=1)).journal == Journal(cycle=1)
    assert resolve_open_step(Journal(cycle=1), Resolution.ABANDON).over


# ── as text ──

ENTRIES = st.builds(
    JournalEntry,
    name=st.text(min_size=1, max_size=5),
    progress=st.sampled_from(StepProgress),
    token=st.integers(0, 2**60),
    kind=st.sampled_from(StepKind),
    attempts=st.integers(0, 20),
    undo_attempts=st.integers(0, 20),
    result=st.none() | st.binary(max_size=20),
    error=st.text(max_size=10),
    final=st.booleans(),
    unsure=st.booleans(),
)


@given(
    st.builds(
        Journal, cycle=st.integers(0, 2**60), direction=st.sampled_from(Direction), entries=st.lists(ENTRIES).map(tuple)
    )
)
def test_a_journal_comes_back_as_it_was(journal: Journal) -> None:
    assert journal_from(note_of(journal)) == journal
    assert all(entry.result is None for entry in without_results(journal).entries)


def test_no_journal_is_none_and_a_strange_one_is_refused() -> None:
    assert journal_from({}) is None
    assert journal_from({SAGA: ""}) is None
    with pytest.raises(ResultCorrupt):
        journal_from({SAGA: "{"})
    with pytest.raises(UnknownCodec):
        journal_from({SAGA: '{"cycle": 1, "version": 2}'})


def test_a_plan_may_grow_at_its_end_only() -> None:
    journal = step_begun(Journal(cycle=1), PLAN[0], 1)
    assert not incompatibility(PLAN[:1], journal)
    assert "other steps: a" in incompatibility(PLAN[1:], journal)
    assert incompatibility((), journal)
