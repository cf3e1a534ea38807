"""Sagas as users have them: both colours, every store."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from onceward import (
    AsyncOnce,
    ConfigurationError,
    MemoryStore,
    MissingKey,
    NotAcquired,
    Once,
    OutcomeParked,
    PayloadMismatch,
    PreviouslyFailed,
    ResultNotStored,
    State,
    Step,
    StepRun,
    Stopping,
    StoreUnavailable,
    abandon,
    applied,
    current_async_claim,
    current_claim,
    inconclusive,
    not_applied,
    testing,
    verify,
)
from onceward.encryption import AesGcm
from onceward.model.journal import Direction, Progress
from onceward.model.note import INPUT, SAGA
from onceward.testing import FakeClock
from tests.faces import TOO_LONG, AsyncFace, Colour, Face, Place, nothing_at_once, place_of
from tests.moved_time import in_thread


class Refused(Exception):
    """The remote's last word."""


@pytest.fixture(params=["memory", *os.environ.get("ONCEWARD_TEST_PLACES", "").split()])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Place:
    """Memory is enough for what no store decides; the soak adds servers."""
    return place_of(request, tmp_path, clock)


on_every_store = pytest.mark.parametrize("place", ["memory", "sqlite", "postgres", "valkey"], indirect=True)
"""What depends on what a store keeps of a note, across claims, renewals, settlements and resolutions."""


class Saga:
    """A saga of either colour, called as blocking code."""

    def __init__(self, face: Face, saga: Any) -> None:
        self._face = face
        self.saga = saga

    def __call__(self, **given: Any) -> Any:
        return self._face._wait(self.saga(**given))

    def outcome(self, **given: Any) -> Any:
        return self._face._wait(self.saga.outcome(**given))

    def read(self, **given: Any) -> Any:
        return self._face._wait(self.saga.read(**given))

    def resolve(self, finding: Any, **given: Any) -> None:
        self._face._wait(self.saga.resolve(finding, **given))

    def retry(self, **given: Any) -> None:
        self._face._wait(self.saga.retry(**given))


class Shop:
    """What the steps do, in the order in which they did it. `trouble` is raised by the act of that name, in turn."""

    def __init__(self, face: Face) -> None:
        self.face = face
        self.log: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.trouble: dict[str, list[BaseException]] = {}

    def act(self, name: str, value: Any = None) -> Callable[[StepRun], Any]:
        def act(step: StepRun) -> Any:
            self.log.append(name)
            self.keys.setdefault(name, set()).add(step.key)
            waiting = self.trouble.get(name)
            if waiting:
                raise waiting.pop(0)
            return value

        return self.face._work(act)

    def step(self, name: str, value: Any = None, **choices: Any) -> Step:
        choices.setdefault("retry_delay", 0)
        if "kind" not in choices:
            choices["undo"] = self.act(f"undo {name}")
        return Step(name, self.act(name, value), **choices)

    def saga(self, *steps: Step, **choices: Any) -> Saga:
        return Saga(self.face, self.face.once.saga("order", *steps, key="order:{number}", **choices))

    def usual(self, **choices: Any) -> Saga:
        steps = (
            self.step("reserve", "seat 5"),
            self.step("charge", Decimal("9.90"), final=Refused),
            self.step("ship", kind="pivot", final=Refused),
            self.step("mail", kind="retriable"),
        )
        return self.saga(*steps, **choices)


@pytest.fixture
def shop(face: Face) -> Shop:
    return Shop(face)


@on_every_store
def test_all_steps_are_done_and_their_results_replayed(shop: Shop) -> None:
    order = shop.usual()
    assert order(number=1) == {"reserve": "seat 5", "charge": Decimal("9.90"), "ship": None, "mail": None}
    assert order.outcome(number=1).value["charge"] == Decimal("9.90")
    assert order.outcome(number=1).kind == "replayed"
    assert shop.log == ["reserve", "charge", "ship", "mail"]
    entry = order.read(number=1)
    assert entry.state is State.COMPLETED
    assert [line.progress for line in entry.saga.lines] == [Progress.DONE] * 4
    assert entry.note == {}
    assert entry.record.note[INPUT] == "", "what others would have needed to finish it"


@pytest.mark.mission("A6")
def test_a_refused_step_undoes_the_earlier_ones_newest_first_and_the_record_ends_failed(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused("no such address")]
    with pytest.raises(Refused, match="no such address"):
        order(number=1)
    assert shop.log == ["reserve", "charge", "ship", "undo charge", "undo reserve"]
    entry = order.read(number=1)
    assert (entry.state, entry.record.final, entry.error) == (State.FAILED, True, "Refused: no such address")
    assert entry.saga.undone
    with pytest.raises(PreviouslyFailed, match="no such address"):
        order(number=1)
    assert len(shop.log) == 5, "a redelivery does nothing"
    assert [event.reason for event in shop.face.told("compensating")] == ["ship"]
    assert [event.reason for event in shop.face.told("step_undone")] == ["charge", "reserve"]


def test_what_certainly_did_not_happen_is_tried_again_and_then_undone(shop: Shop) -> None:
    order = shop.saga(shop.step("reserve"), shop.step("charge", not_applied=ConnectionError))
    shop.trouble["charge"] = [ConnectionError("no route")] * 2
    order(number=1)
    assert shop.log == ["reserve", "charge", "charge", "charge"]
    shop.log.clear()
    shop.trouble["charge"] = [ConnectionError("no route")] * 3
    assert order.outcome(number=2).kind == "failed"
    assert shop.log == ["reserve", "charge", "charge", "charge", "undo reserve"]
    assert len(shop.keys["charge"]) == 2, "one derived key for each saga, the same in every attempt"


def test_an_attempt_of_which_nobody_knows_is_done_again_under_the_same_key(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError(), ConnectionResetError()]
    order(number=1)
    assert shop.log.count("charge") == 3
    assert len(shop.keys["charge"]) == 1
    assert [event.error for event in shop.face.told("step_failed")] == ["TimeoutError", "ConnectionResetError"]


@on_every_store
def test_nobody_knows_and_attempts_are_used_up_a_person_is_asked_and_says_that_it_was_done(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError("busy"), TimeoutError("busy"), TimeoutError("no answer")]
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "AttemptsUsedUp")
    assert "TimeoutError: no answer → if that means that nothing happened, declare it" in outcome.error
    assert shop.log == ["reserve", "charge", "charge", "charge"], "nothing is undone that may still be needed"
    assert order.read(number=1).saga.line("charge").error == "no answer", "of the last attempt, too"
    with pytest.raises(OutcomeParked):
        order(number=1)
    order.resolve(applied(Decimal("9.90")), number=1)
    assert order(number=1)["charge"] == Decimal("9.90")
    assert shop.log[4:] == ["ship", "mail"]


def test_a_person_says_that_it_was_not_done_and_it_gets_all_attempts_again(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError()] * 5
    assert order.outcome(number=1).kind == "parked"
    order.resolve(not_applied, number=1)
    assert order.outcome(number=1).kind == "executed"
    assert shop.log.count("charge") == 6


def test_a_person_gives_up_and_what_was_done_is_undone_after_the_unknown_step_is_settled(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [TimeoutError()] * 3
    order.outcome(number=1)
    shop.log.clear()
    order.resolve(abandon, number=1)
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.final) == ("failed", True)
    assert shop.log == ["charge", "undo charge", "undo reserve"]


def test_retry_goes_on_with_all_attempts(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["mail"] = [OSError("smtp")] * 12
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "AttemptsUsedUp")
    assert shop.log.count("mail") == 10
    order.retry(number=1)
    assert order(number=1)["mail"] is None
    assert shop.log.count("mail") == 13
    assert "undo charge" not in shop.log, "behind the pivot there is no way back"
    with pytest.raises(NotAcquired, match="nothing to retry"):
        order.retry(number=1)
    with pytest.raises(NotAcquired, match="no such saga"):
        order.retry(number=99)


@on_every_store
def test_what_was_undone_begins_anew_under_other_keys(shop: Shop) -> None:
    """Else a remote would take the new charge for the refunded one."""
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    order.outcome(number=1)
    order.retry(number=1)
    assert order.outcome(number=1).kind == "executed"
    assert shop.log[5:] == ["reserve", "charge", "ship", "mail"]
    assert len(shop.keys["charge"]) == 2
    assert len(shop.keys["undo charge"]) == 1


@pytest.mark.fault("F74")
@on_every_store
def test_an_undo_that_fails_is_repeated_and_then_waits_for_a_person(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    shop.trouble["undo charge"] = [ConnectionError("bank")] * 12
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "UndoFailed")
    assert shop.log.count("undo charge") == 10
    assert "undo reserve" not in shop.log, "never skipped"
    order.retry(number=1)
    assert order.outcome(number=1).kind == "failed"
    assert shop.log.count("undo charge") == 13
    assert shop.log[-1] == "undo reserve"
    assert order.read(number=1).error == "Refused: "


def test_a_person_has_undone_it_by_hand(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["ship"] = [Refused()]
    shop.trouble["undo charge"] = [ConnectionError("bank")] * 10
    order.outcome(number=1)
    order.resolve(applied(), number=1)
    assert order.outcome(number=1).kind == "failed"
    assert shop.log.count("undo charge") == 10
    assert shop.log[-1] == "undo reserve"


@pytest.mark.parametrize("there", [True, False])
def test_a_step_that_can_be_looked_up_is_not_repeated_blindly(shop: Shop, there: bool) -> None:
    def find(step: StepRun) -> object:
        shop.log.append("look")
        return applied("found") if there else not_applied

    charge = shop.step("charge", "new", after_crash=verify(shop.face._work(find)), kind="pivot")
    order = shop.saga(shop.step("reserve"), charge)
    shop.trouble["charge"] = [TimeoutError()]
    assert order(number=1)["charge"] == ("found" if there else "new")
    assert shop.log == ["reserve", "charge", "look"] + ([] if there else ["charge"])


@pytest.mark.parametrize("answer", [inconclusive, "perhaps", OSError("the bank is closed")])
def test_who_cannot_tell_parks_it_and_may_be_asked_again(shop: Shop, answer: Any) -> None:
    answers = [answer, applied("found")]

    def find(step: StepRun) -> object:
        one = answers.pop(0)
        if isinstance(one, BaseException):
            raise one
        return one

    order = shop.saga(shop.step("charge", after_crash=verify(shop.face._work(find))))
    shop.trouble["charge"] = [TimeoutError()]
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("parked", "Unverified")
    order.retry(number=1)
    assert order(number=1) == {"charge": "found"}


def test_a_step_that_is_neither_is_parked_at_once_and_retry_alone_is_no_answer(shop: Shop) -> None:
    order = shop.saga(shop.step("wire", after_crash="park", kind="pivot"))
    shop.trouble["wire"] = [TimeoutError()]
    assert order.outcome(number=1).error_type == "Unsettled"
    with pytest.raises(NotAcquired, match="only be parked again"):
        order.retry(number=1)
    with pytest.raises(NotAcquired, match="no way back"):
        order.resolve(abandon, number=1)
    order.resolve(not_applied, number=1)
    order(number=1)
    assert shop.log == ["wire", "wire"]


def test_a_step_sees_its_input_the_results_before_it_and_its_keys(shop: Shop) -> None:
    seen: list[StepRun] = []

    def look(step: StepRun) -> None:
        step.check()
        seen.append(step)
        assert step.results["reserve"] == "seat 5"
        assert dict(step.results) == {"reserve": "seat 5"}
        with pytest.raises(ResultNotStored):
            _ = step.result

    order = shop.saga(shop.step("reserve", "seat 5"), Step("look", shop.face._work(look), kind="pivot"))
    order(number=1, seat=5)
    step = seen[0]
    assert step.input == {"number": 1, "seat": 5}
    assert (step.saga_key, step.name, step.attempt) == ("order:1", "look", 1)
    assert step.key != step.undo_key
    assert step.key.startswith("ow_")
    assert step.token == order.read(number=1).token
    assert "order:1: look" in repr(step)


class Document(Struct):
    """The input of a saga, with types."""

    number: int
    day: date


class Receipt(Struct):
    total: Decimal


def test_input_and_results_keep_their_types(shop: Shop) -> None:
    def print_it(step: StepRun) -> Receipt:
        assert isinstance(step.input, Document)
        assert step.input.day == date(2026, 1, 31)
        return Receipt(Decimal("1.50"))

    def check(step: StepRun) -> None:
        assert step.results["print"] == Receipt(Decimal("1.50"))

    steps = (Step("print", shop.face._work(print_it), undo=check), Step("check", shop.face._work(check), kind="pivot"))
    order = shop.saga(*steps, takes=Document)
    given = {"number": 1, "day": date(2026, 1, 31)}
    assert order(**given)["print"] == Receipt(Decimal("1.50"))
    assert order(**given)["print"] == Receipt(Decimal("1.50"))
    with pytest.raises(TypeError):
        order(number=1)


@pytest.mark.fault("F18")
def test_the_same_key_with_another_input_is_a_mismatch(shop: Shop) -> None:
    order = shop.usual()
    order(number=1, seat=5)
    with pytest.raises(PayloadMismatch, match="seat"):
        order(number=1, seat=6)


@pytest.mark.fault("F21", "F22")
@on_every_store
def test_a_result_that_cannot_be_kept_is_done_and_missed_at_once(shop: Shop) -> None:
    """In the first run as well as after a crash: who relies on it is told early."""

    def wants(step: StepRun) -> None:
        _ = step.results["make"]

    make = shop.step("make", random.Random(1).randbytes(600_000))
    order = shop.saga(make, Step("use", shop.face._work(wants), kind="pivot", final=ResultNotStored))
    with pytest.raises(ResultNotStored, match="the result of step make was not kept"):
        order(number=1)
    assert shop.log == ["make", "undo make"]
    assert "limit" in shop.face.told("result_not_stored")[0].reason


@pytest.mark.fault("F27")
@on_every_store
def test_an_interrupt_leaves_the_saga_to_whoever_comes_next(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    entry = order.read(number=1)
    assert entry.state is State.PENDING
    assert entry.saga.line("charge").progress is Progress.BEGUN
    assert shop.face.leases() == 0
    assert order.outcome(number=1).attempt == 2
    assert shop.log == ["reserve", "charge", "charge", "ship", "mail"]


@on_every_store
def test_results_as_large_as_the_journal_takes_survive_a_take_over(shop: Shop) -> None:
    first, second = (random.Random(seed).randbytes(60_000) for seed in (1, 2))
    order = shop.saga(shop.step("first", first), shop.step("second", second), shop.step("third", kind="pivot"))
    shop.trouble["third"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    assert order(number=1) == {"first": first, "second": second, "third": None}
    assert shop.log == ["first", "second", "third", "third"]


@on_every_store
def test_a_half_done_saga_never_expires(shop: Shop) -> None:
    order = shop.usual(window="1h")
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    shop.face.clock.advance("60d")
    assert shop.face.purge() == 0
    order(number=1)
    assert shop.log.count("reserve") == 1


@on_every_store
def test_another_worker_goes_on_where_the_first_fell_silent(shop: Shop) -> None:
    """The one that comes back late is refused, and calls nothing more."""
    other = Shop(shop.face.another())
    other_order = other.usual()

    def stall(step: StepRun) -> str:
        shop.log.append("stall")
        shop.face.clock.advance("11m")  # silent for longer than the lease; somebody else takes over
        assert other_order.outcome(number=1).attempt == 2
        return "too late"

    order = shop.saga(
        shop.step("reserve", "seat 5"),
        Step("charge", shop.face._work(stall), undo=shop.act("undo charge"), final=Refused),
        shop.step("ship", kind="pivot"),
        shop.step("mail", kind="retriable"),
    )
    outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.lost) == ("unknown", True)
    assert shop.log == ["reserve", "stall"]
    assert other.log == ["charge", "ship", "mail"]
    assert order.read(number=1).value["charge"] == Decimal("9.90")


def test_steps_that_were_begun_keep_their_names(shop: Shop) -> None:
    order = shop.usual()
    shop.trouble["charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order.outcome(number=1)
    shop.face.once.sagas.clear()
    renamed = shop.saga(shop.step("book"), shop.step("charge"))
    with pytest.raises(ConfigurationError, match="begun with other steps: reserve, charge"):
        renamed.outcome(number=1)
    shop.face.once.sagas.clear()
    assert shop.usual().outcome(number=1).kind == "executed", "nothing was lost"


def test_a_step_that_was_done_keeps_its_undo(shop: Shop) -> None:
    """It was undone half-way; a new version of the program says that charges cannot be undone."""
    order = shop.usual()
    shop.trouble["ship"] = [Refused("no such address")]
    shop.trouble["undo charge"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        order(number=1)
    shop.face.once.sagas.clear()
    changed = shop.saga(shop.step("reserve"), shop.step("charge", kind="pivot"), shop.step("ship", kind="retriable"))
    with pytest.raises(ConfigurationError, match="charge could be undone when it was begun"):
        changed.outcome(number=1)
    shop.face.once.sagas.clear()
    with pytest.raises(PreviouslyFailed, match="no such address"):
        shop.usual()(number=1)
    assert shop.log[-2:] == ["undo charge", "undo reserve"]


@pytest.mark.fault("F5")
@pytest.mark.rival(30)
def test_without_a_key_no_saga_is_begun_whatever_the_client_says(place: Place, colour: Colour) -> None:
    """Else all of them would be one: the second order would be answered with the first one's results."""
    kind = Face if colour == "blocking" else AsyncFace
    shop = Shop(kind(place, on_missing_key="run"))
    order = shop.usual()
    for _ in range(2):
        with pytest.raises(MissingKey):
            order(number=None)
    assert shop.log == []
    shop.face.close()


def test_no_step_completes_its_saga(shop: Shop) -> None:
    def pay(step: StepRun) -> None:
        claim = current_claim() if shop.face.colour == "blocking" else current_async_claim()
        assert claim.derived_key("x") == step.derived_key("x")
        shop.face._wait(claim.complete("done"))

    order = shop.saga(shop.step("reserve"), Step("pay", shop.face._work(pay), kind="pivot", final=ConfigurationError))
    with pytest.raises(ConfigurationError, match="a step cannot complete its saga"):
        order(number=1)
    assert shop.log == ["reserve", "undo reserve"]


@pytest.mark.fault("F51", "F53")
def test_a_journal_that_gets_no_answer_is_written_again(shop: Shop) -> None:
    order = shop.usual()
    with shop.face.store_trouble("renew", times=3, applied=True):
        order(number=1)
    assert shop.log == ["reserve", "charge", "ship", "mail"]
    assert shop.face.told("settle_retried")


@contextmanager
def late_renewal(store: Any) -> Iterator[Callable[[], Any]]:
    """The first journal line gets no answer: it is under way still, and arrives when the given call is made."""
    kind: Any = type(store)
    sound = kind.renew
    late: list[tuple[Any, Any, Any]] = []

    async def renew(store: Any, renewals: Any, **how: Any) -> Any:
        if late or not renewals[0].note:
            return await sound(store, renewals, **how)
        late.append((store, renewals, how))
        raise StoreUnavailable("no answer")

    def arrive() -> Any:
        store, renewals, how = late[0]
        return sound(store, renewals, **how)

    with nothing_at_once():
        kind.renew = renew
        try:
            yield arrive
        finally:
            kind.renew = sound


@on_every_store
@pytest.mark.rival(1)
@pytest.mark.fault("F53")
def test_a_journal_line_that_arrives_late_does_not_take_the_saga_back(shop: Shop) -> None:
    """Else the intent of the transfer would be forgotten, and it be sent twice."""
    arrivals: list[Callable[[], Any]] = []

    def wire(step: StepRun) -> None:
        shop.log.append("wire")
        if arrivals:
            shop.face.drive(arrivals.pop()())
            raise KeyboardInterrupt

    wired = Step("wire", shop.face._work(wire), kind="pivot", after_crash="park")
    order = shop.saga(shop.step("reserve"), wired)
    with late_renewal(shop.face.once.store) as arrive, pytest.raises(KeyboardInterrupt):
        arrivals.append(arrive)
        order(number=1)
    assert order.outcome(number=1).kind == "parked"
    assert shop.log == ["reserve", "wire"]


def test_who_gets_no_answer_is_overtaken_by_somebody_else_and_stops(shop: Shop) -> None:
    """A journal line was repeated, and before our claim has its new token, another worker has the saga."""
    other = Shop(shop.face.another())
    other_order = other.usual()
    order = shop.usual()
    kind: Any = type(shop.face.once.store)
    sound = kind.renew

    async def renew(store: Any, renewals: Any, **how: Any) -> Any:
        answers = await sound(store, renewals, **how)
        if renewals[0].lease == 0:
            in_thread(lambda: other_order.outcome(number=1)).result(TOO_LONG)
        return answers

    with shop.face.store_trouble("renew", times=1, applied=True):
        sound, kind.renew = kind.renew, renew
        outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.lost) == ("unknown", True)
    assert shop.log == []
    assert other.log == ["reserve", "charge", "ship", "mail"]


@pytest.mark.fault("F37")
def test_who_is_told_to_stop_does_not_wait_for_the_next_attempt(shop: Shop) -> None:
    def stop(step: StepRun) -> None:
        shop.log.append("stop")
        shop.face.once.stop()
        raise TimeoutError

    order = shop.saga(Step("stop", shop.face._work(stop), kind="pivot", retry_delay="1h"))
    with pytest.raises(Stopping, match="goes on elsewhere"):
        order.outcome(number=1)
    assert shop.log == ["stop"]
    other = Shop(shop.face.another())
    assert other.saga(other.step("stop", kind="pivot")).outcome(number=1).kind == "executed"


def test_a_delay_that_cannot_be_worked_out_keeps_nothing_up(shop: Shop) -> None:
    order = shop.saga(shop.step("charge", retry_delay=lambda attempt: 1 / 0))
    shop.trouble["charge"] = [TimeoutError()]
    order(number=1)
    assert shop.face.told("retry_delay_failed")


class Mute(Exception):
    """It cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_a_result_that_lets_nobody_look_at_it_is_a_result(shop: Shop) -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    shop.saga(shop.step("charge", Proxy()))(number=1)
    assert shop.log == ["charge"]


def test_errors_that_cannot_be_printed_are_errors_like_any_other(shop: Shop) -> None:
    def raising(_attempt: int) -> float:
        raise Mute

    order = shop.saga(shop.step("charge", retry_delay=raising))
    shop.trouble["charge"] = [Mute(), Mute()]
    order(number=1)
    assert shop.log == ["charge"] * 3
    assert len(shop.face.told("retry_delay_failed")) == 2


def test_stop_iteration_is_an_error_like_any_other() -> None:
    def charge(step: StepRun) -> None:
        raise StopIteration("over")

    with Once(MemoryStore()) as once:
        order = once.saga("order", Step("charge", charge, kind="pivot", final=StopIteration), key="order:{number}")
        with pytest.raises(StopIteration):
            order(number=1)
        entry = order.read(number=1)
        assert entry is not None
        assert entry.error == "StopIteration: over"


@pytest.mark.mission("A7", "A9")
@pytest.mark.fault("F50")
def test_while_the_store_is_down_a_saga_runs_only_if_that_was_chosen_for_it(shop: Shop) -> None:
    bold = Shop(shop.face.another(on_store_down="run"))
    closed, opened = bold.usual(), bold.usual(version=2, on_store_down="run")
    with bold.face.store_trouble("claim"):
        with pytest.raises(StoreUnavailable):
            closed(number=1)
        outcome = opened.outcome(number=1)
    assert (outcome.kind, outcome.reason, outcome.value["reserve"]) == ("executed", "unprotected", "seat 5")
    assert bold.log == ["reserve", "charge", "ship", "mail"]
    assert [(one.level.name, one.key) for one in bold.face.told("unprotected")] == [("ERROR", "order:1")]
    assert opened.read(number=1) is None, "nobody knows of it"


@pytest.mark.mission("A7")
@pytest.mark.fault("F50")
def test_a_saga_without_a_store_is_undone_from_memory_if_it_has_to_be(shop: Shop) -> None:
    order = shop.usual(on_store_down="run")
    shop.trouble["ship"] = [Refused("no")]
    with shop.face.store_trouble("claim"):
        outcome = order.outcome(number=1)
    assert (outcome.kind, outcome.error_type) == ("failed", "Refused")
    assert shop.log == ["reserve", "charge", "ship", "undo charge", "undo reserve"]


def test_while_disabled_steps_and_compensations_run_on_nobodys_record(shop: Shop) -> None:
    order = shop.usual()
    with testing.disabled():
        assert order.outcome(number=1).reason == "disabled"
        shop.trouble["ship"] = [Refused()]
        assert order.outcome(number=2).kind == "failed"
    assert shop.log[4:] == ["reserve", "charge", "ship", "undo charge", "undo reserve"]
    assert order.read(number=1) is None


@on_every_store
def test_the_journal_is_encrypted_with_the_results(place: Place, colour: Colour) -> None:
    cipher = AesGcm({"k": b"0" * 32}, current="k")
    face = (Face if colour == "blocking" else AsyncFace)(place, cipher=cipher)
    shop = Shop(face)
    order = shop.saga(shop.step("reserve", "a secret seat"), shop.step("charge", after_crash="park"))
    shop.trouble["charge"] = [TimeoutError()]
    order.outcome(number=1, card="4111 1111")
    note = order.read(number=1, card="4111 1111").record.note
    assert "secret" not in str(note)
    assert "4111" not in str(note)
    order.resolve(applied("paid"), number=1, card="4111 1111")
    assert order(number=1, card="4111 1111") == {"reserve": "a secret seat", "charge": "paid"}
    face.close()


def test_a_saga_of_four_steps_takes_ten_calls_to_the_store(place: Place) -> None:
    """Its claim, an intent and a result for each step, and its end; its input costs none."""
    store: Any = place.open()
    asked: list[str] = []
    sound = store.answer

    def answer(request: Any) -> Any:
        asked.append(type(request).__name__)
        return sound(request)

    store.answer = answer
    with Once(store) as once:
        steps = [Step(f"step {n}", lambda step: step.key, kind="retriable") for n in range(4)]
        once.saga("s", *steps, key="s:{n}")(n=1)
    assert asked == ["ClaimRequest", *["Renewal"] * 8, "Complete"]


@pytest.mark.fault("F28")
def test_a_cancelled_task_leaves_the_saga_to_whoever_comes_next() -> None:
    log: list[str] = []

    async def main() -> None:
        inside = asyncio.Event()

        async def first(step: StepRun) -> None:
            log.append("first")

        async def hang(step: StepRun) -> None:
            log.append("hang")
            if log.count("hang") == 1:
                inside.set()
                await asyncio.Event().wait()

        async with AsyncOnce(MemoryStore()) as once:
            saga = once.saga("s", Step("first", first, undo=first), Step("hang", hang, kind="pivot"), key="s:{n}")
            task = asyncio.create_task(saga(n=1))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await saga.outcome(n=1)).attempt == 2

    asyncio.run(main())
    assert log == ["first", "hang", "hang"]


def test_a_person_who_has_only_the_key_resolves_the_step_too() -> None:
    """`once.resolve` must not declare a half-done saga completed."""

    def wire(step: StepRun) -> None:
        raise TimeoutError

    done: list[str] = []
    with Once(MemoryStore()) as once:
        saga = once.saga(
            "order",
            Step("wire", wire, undo=wire, after_crash="park"),
            Step("mail", lambda step: done.append(step.results["wire"]), kind="pivot"),
            key="order:{n}",
        )
        saga.outcome(n=1)
        once.resolve("order:1", applied("by hand"), name="order", why="phoned the bank")
        entry = saga.read(n=1)
        assert entry is not None
        assert entry.state is State.PENDING
        assert entry.saga is not None
        assert entry.saga.direction is Direction.FORWARD
        assert saga(n=1) == {"wire": "by hand", "mail": None}
        assert done == ["by hand"]
        assert [entry.detail for entry in once.audit()] == ["applied"]
        assert SAGA not in entry.note
