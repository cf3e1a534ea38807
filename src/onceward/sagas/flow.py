"""Carry a saga to one of its two ends: all done, or all undone. What comes next is asked of `sagas.journal`.

    claim the saga ── not ours ──→ Replayed, Running, Mismatch, Failed, Parked
        │ ours: with the journal, if somebody was here before
    what comes next?
        ├─ do     write the intent → call `do` → write the result
        ├─ ask    call verify's `find` → write what it found
        ├─ turn   write that it compensates
        ├─ undo   write the intent → call `undo` → write that it is undone
        ├─ park   ──→ Parked: a person has to say
        └─ over   ──→ Executed, or Failed with everything undone

Every write is fenced: who was replaced gets LeaseLost and calls nothing. The record is claimed under verify, so that a
saga whose owner fell silent never expires, and is never simply run again: its journal is looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, cast

from msgspec import Struct

from onceward.engine import switch
from onceward.engine.acquire import acquire
from onceward.engine.attempt import Attempt
from onceward.engine.ending import classify
from onceward.engine.engine import Engine
from onceward.engine.error_text import message_of, words_of
from onceward.engine.execute import at_a_glance
from onceward.engine.interrupted import recover
from onceward.engine.job import Job
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import NOT_DOWN, ConfigurationError, LeaseLost, Stopping, StoreError
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import SECOND, applied, inconclusive, not_applied
from onceward.results.codec import Codec

from . import journal as writing
from .claim import SagaClaim
from .definition import Plan, PlannedStep
from .journal import Compensate, Do, Finished, JournalEntry, ParkSaga, Undo, VerifyStep, what_next
from .step_context import StepContext, StepResults, part_of

GLANCE = 0.5
"""Seconds between looks whether to stop, while a step waits for its next attempt."""


class SagaJob(Struct, frozen=True):
    """One delivery of a saga. `input` is what its steps see; `codecs` are those of their results."""

    job: Job
    plan: Plan
    codecs: Mapping[str, Codec]
    input: Any


async def run_saga(engine: Engine, saga: SagaJob) -> Outcome[Any]:
    """Begin it, or go on where somebody stopped, or say why not."""
    told = at_a_glance(engine, saga.job)
    if told is not None:
        return told
    if switch.off:
        return await on_no_record(engine, saga, "disabled")
    attempt = Attempt(engine, saga.job)
    try:
        await engine.ready()
        found = await acquire(attempt)
        if not isinstance(found, Attempt):
            return found
        run = SagaRun(attempt, saga)
        with attempt:
            return await run.to_its_end()
    except BaseException as error:
        await recover(engine, [attempt], error)
        down = isinstance(error, StoreError) and not isinstance(error, NOT_DOWN)
        if attempt.granted or not down or saga.job.policy.on_store_down != "run":
            raise
        reason = f"store down: {message_of(error)}"
    engine.emit("unprotected", saga.job.key, reason=reason)
    return await on_no_record(engine, saga, "unprotected")


async def on_no_record(engine: Engine, saga: SagaJob, why: str) -> Outcome[Any]:
    """The same steps and compensations, with a journal that only this process knows."""
    with Unclaimed(engine, saga.job, why) as unclaimed:
        return await SagaRun(unclaimed, saga).to_its_end()


class SagaRun:
    """One owner's part of a saga."""

    def __init__(self, attempt: Attempt, saga: SagaJob) -> None:
        self.attempt = attempt
        self.saga = saga
        self.plan = saga.plan
        self.claim = SagaClaim(attempt)
        misfit = writing.misfit(self.plan, self.claim.journal)
        if misfit:
            raise ConfigurationError(
                misfit,
                key=attempt.key.text,
                hint="bring that back under its name until the saga is over; new steps go behind",
            )

    async def to_its_end(self) -> Outcome[Any]:
        attempt = self.attempt
        try:
            attempt.begin()
            return await self._moves()
        except LeaseLost:
            return self.claim.lost()
        except StoreError as error:  # nothing more can be said to it from here
            attempt.abandon()
            self.claim.emit("unknown", "journal", repr(error))
            raise
        except BaseException as error:
            if attempt.end(error):
                return self.claim.lost()
            # What interrupts us says nothing about the step that it interrupts: whoever comes next settles that first.
            if attempt.engine.runtime.cancels and isinstance(error, GeneratorExit):
                attempt.abandon()
            elif not attempt.over:
                await attempt.lapse()
            raise

    async def _moves(self) -> Outcome[Any]:
        claim = self.claim
        while True:
            match self._next():
                case Do(step):
                    await self._do(self.plan[step])
                case VerifyStep(step):
                    unanswered = await self._ask(self.plan[step])
                    if unanswered:
                        return await claim.park(ParkSaga(step, "Unverified", unanswered))
                case Compensate(step):
                    self._turn(self.plan[step])
                    await claim.write()
                case Undo(step):
                    await self._undo(self.plan[step])
                case ParkSaga() as move:
                    return await claim.park(move)
                case Finished(undone):
                    return await (claim.fail() if undone else claim.complete(self._kept()))

    def _next(self) -> writing.Move:
        return what_next(self.plan, self.claim.journal)

    # ── steps ──

    async def _do(self, step: PlannedStep) -> None:
        claim = self.claim
        claim.journal = writing.begun(claim.journal, step, self.attempt.record.token)
        await claim.write()
        value, error = await self._call(step.do, step)
        if error is None:
            await self._did(step, value)
        else:
            await self._did_not(step, error)

    async def _did(self, step: PlannedStep, value: Any) -> None:
        engine, claim = self.attempt.engine, self.claim
        part = part_of(self.attempt.key.id, step.name)
        encoded, cancelled = await engine.runtime.finish(engine.encode(self.saga.codecs[step.name], value, part))
        if encoded.data is None:
            claim.emit("result_not_stored", f"{step.name}: {encoded.reason}")
        claim.journal = writing.done(claim.journal, step.name, encoded.data)
        await claim.write()
        claim.emit("step_done", step.name)
        if cancelled is not None:
            raise cancelled

    async def _did_not(self, step: PlannedStep, error: Exception) -> None:
        """It raised. What that means for its effect is declared; unless declared it is unknown, and to be settled.

        `final` is the remote's last word under the step's key. `not_applied` is about this attempt alone: it does not
        settle an earlier one.
        """
        claim = self.claim
        final, known = classify(error, step.policy)
        claim.raised = error
        claim.emit("step_failed", step.name, _type_of(error))
        told = _type_of(error), message_of(error)
        if final or (known and not self._line(step).unsure):
            claim.journal = writing.not_done(claim.journal, step.name, *told, final=final)
            if isinstance(self._next(), Compensate):
                self._turn(step)
            await claim.write()
        else:  # written with the next intent, or with the parking
            claim.journal = writing.troubled(claim.journal, step.name, *told)
        if isinstance(self._next(), Do):
            await self._pause(step, self._line(step).attempts)

    async def _ask(self, step: PlannedStep) -> str:
        """Settle an intent without a result by looking; in words, why nobody can tell."""
        claim = self.claim
        await self._sleep(step.policy.verify_after / SECOND)  # before, an earlier attempt may still take effect
        finding, error = await self._call(step.policy.find or _ask_nobody, step)
        if error is not None:
            claim.raised = error
            return f"verify of step {step.name} raised {words_of(error)}"
        if isinstance(finding, applied):
            await self._did(step, finding.value)
        elif finding is not_applied:
            line = self._line(step)
            why = (line.error_type, line.error) if line.error_type else ("NotApplied", "verify did not find it")
            claim.journal = writing.not_done(claim.journal, step.name, *why)
            await claim.write()
            if isinstance(self._next(), Do):
                await self._pause(step, line.attempts)
        else:
            word = "could not tell" if finding is inconclusive else f"answered {type(finding).__qualname__}"
            return f"verify of step {step.name} {word}"
        return ""

    def _turn(self, step: PlannedStep) -> None:
        line = self._line(step)
        self.claim.journal = writing.turned(self.claim.journal, line.error_type, line.error)
        self.claim.emit("compensating", step.name, line.error_type)

    async def _undo(self, step: PlannedStep) -> None:
        claim = self.claim
        claim.journal = writing.undoing(claim.journal, step.name, self.attempt.record.token)
        await claim.write()
        _, error = await self._call(cast("Callable[..., Any]", step.undo), step)  # no plan that fits lacks it
        if error is None:
            claim.journal = writing.undone(claim.journal, step.name)
            await claim.write()
            claim.emit("step_undone", step.name)
            return
        claim.emit("step_failed", f"undo {step.name}", _type_of(error))
        claim.journal = writing.troubled(claim.journal, step.name, _type_of(error), message_of(error))
        if isinstance(self._next(), Undo):
            await self._pause(step, self._line(step).undo_attempts)

    async def _call(self, call: Callable[..., Any], step: PlannedStep) -> tuple[Any, Exception | None]:
        """What it returns, or raises: as a value, so that even StopIteration survives."""
        attempt = self.attempt
        attempt.act = run = StepContext(attempt, self.claim.journal, self._line(step), self.saga.input, self._results())
        try:
            value = call(run)
            if hasattr(type(value), "__await__"):  # not of the value: what its own code raises there is no failure
                value = await (value if attempt.engine.runtime.cancels else _unawaitable(value))
        except Exception as error:  # noqa: BLE001 (whatever it raised, it is a fact for the journal)
            return None, error
        finally:
            attempt.act = None
        return value, None

    def _kept(self) -> dict[str, Any]:
        """All is done, so the saga is: a result that cannot be read any more is left out, and told."""
        kept, unreadable = self._results().kept()
        for name, why in unreadable.items():
            self.claim.emit("result_not_stored", f"{name}: {why}")
        return kept

    def _line(self, step: PlannedStep) -> JournalEntry:
        return next(line for line in self.claim.journal.lines if line.name == step.name)

    def _results(self) -> StepResults:
        return StepResults(self.claim.journal, self.saga.codecs, self.attempt.key.id, self.attempt.key.text)

    async def _pause(self, step: PlannedStep, attempt: int) -> None:
        try:
            delay = step.policy.delay_after(attempt) / SECOND
        except Exception as error:  # noqa: BLE001 (it is the user's own function, and no reason to stop here)
            self.claim.emit("retry_delay_failed", "retried without a delay", words_of(error))
            delay = 0.0
        await self._sleep(delay)

    async def _sleep(self, seconds: float) -> None:
        """In short parts: who is told to stop leaves the rest of the saga to another process."""
        engine = self.attempt.engine
        while seconds > 0:
            if engine.stopping:
                raise Stopping("this process stops; the saga goes on elsewhere", key=self.attempt.key.text)
            await engine.runtime.sleep(min(seconds, GLANCE))
            seconds -= GLANCE


def _type_of(error: BaseException) -> str:
    return type(error).__qualname__


def _ask_nobody(_step: StepContext) -> object:
    return inconclusive


async def _unawaitable(value: Any) -> Any:
    """A blocking call cannot await what a step gave; a coroutine has not begun."""
    if isinstance(value, CoroutineType):
        value.close()
    raise ConfigurationError("a step returned an awaitable, which a blocking call cannot await", hint="use AsyncOnce")
