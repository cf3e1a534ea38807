"""Run a saga until all steps are done or all are undone. `sagas.journal` decides each move.

    claim the saga ── not acquired ──→ Replayed, Running, Mismatch, Failed, Parked
        │ acquired, with the journal of earlier workers
    next_move(plan, journal)
        ├─ Do           write the intent → call `do` → write the result
        ├─ VerifyStep   call verify's `find` → write what it found
        ├─ Compensate   write that the saga compensates
        ├─ Undo         write the intent → call `undo` → write that the step is undone
        ├─ ParkSaga     ──→ Parked: an operator must resolve it
        └─ Finished     ──→ Executed, or Failed with everything undone

Every write is fenced: a worker that was replaced gets LeaseLost and makes no further calls. The record is claimed with
`after_crash=verify`. So the record of a saga whose worker crashed never expires, and the next worker reads the journal
before it runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, cast

from msgspec import Struct

from onceward.engine.abandon import abandon
from onceward.engine.attempt import Attempt
from onceward.engine.conclude import classify
from onceward.engine.engine import Engine
from onceward.engine.error_text import error_for_log, format_error, message_of
from onceward.engine.job import Job
from onceward.engine.runner import claim_one, lookup_outcome
from onceward.engine.settle import expire_lease
from onceward.errors import ConfigurationError, LeaseLost, Stopping, StoreError
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import SECOND, applied, inconclusive, not_applied
from onceward.results.codec import Codec

from . import journal
from .claim import SagaClaim
from .definition import Plan, PlannedStep
from .journal import Compensate, Do, Finished, JournalEntry, ParkSaga, Undo, VerifyStep, next_move
from .step_context import StepContext, StepResults, associated_data

STOP_CHECK_INTERVAL = 0.5
"""Seconds between checks whether the engine is stopping, while a step waits for its next attempt."""


class SagaJob(Struct, frozen=True):
    """One delivery of a saga. `input` is what its steps receive; `codecs` encode their results, by step name."""

    job: Job
    plan: Plan
    codecs: Mapping[str, Codec]
    input: Any


async def run_saga(engine: Engine, saga: SagaJob) -> Outcome[Any]:
    """Start the saga, or continue it where the last worker stopped. Return the outcome, even if the saga did not run.

    An UNPROTECTED saga runs the same steps and compensations, with a journal that exists only in this process.
    """
    replayed = lookup_outcome(engine, saga.job)
    if replayed is not None:
        return replayed
    attempt = Attempt(engine, saga.job)
    try:
        refused = await claim_one(attempt)
        if refused is not None:
            return refused
        run = SagaRun(attempt, saga)
        with attempt:
            return await run.run()
    except BaseException as error:
        await abandon([attempt], error)
        raise


class SagaRun:
    """The part of a saga that one worker runs while it owns the claim."""

    def __init__(self, attempt: Attempt, saga: SagaJob) -> None:
        self.attempt = attempt
        self.saga = saga
        self.plan = saga.plan
        self.claim = SagaClaim(attempt)
        problem = journal.incompatibility(self.plan, self.claim.journal)
        if problem:
            raise ConfigurationError(
                problem,
                key=attempt.key.text,
                hint="keep the begun steps, with names and undo, until the saga has ended; add new steps at the end",
            )

    async def run(self) -> Outcome[Any]:
        attempt = self.attempt
        try:
            attempt.begin()
            return await self._run_moves()
        except LeaseLost:
            return self.claim.lost()
        except StoreError as error:  # the store cannot be reached, so nothing more can be written from here
            attempt.abandon()
            self.claim.emit("unknown", "journal", repr(error))
            raise
        except BaseException as error:
            if attempt.end(error):
                return self.claim.lost()
            # An interruption says nothing about the effect of the step: the next worker settles that step first.
            if attempt.engine.runtime.supports_cancellation and isinstance(error, GeneratorExit):
                attempt.abandon()
            elif not attempt.is_ended:
                await expire_lease(attempt)
            raise

    async def _run_moves(self) -> Outcome[Any]:
        claim = self.claim
        while True:
            match self._next():
                case Do(step):
                    await self._do(self.plan[step])
                case VerifyStep(step):
                    unverified = await self._verify(self.plan[step])
                    if unverified:
                        return await claim.park(ParkSaga(step, "Unverified", unverified))
                case Compensate(step):
                    self._start_compensating(self.plan[step])
                    await claim.write()
                case Undo(step):
                    await self._undo(self.plan[step])
                case ParkSaga() as move:
                    return await claim.park(move)
                case Finished(undone):
                    return await (claim.fail() if undone else claim.complete(self._readable_results()))

    def _next(self) -> journal.Move:
        return next_move(self.plan, self.claim.journal)

    # ── steps ──

    async def _do(self, step: PlannedStep) -> None:
        claim = self.claim
        claim.journal = journal.step_begun(claim.journal, step, self.attempt.record.token)
        await claim.write()
        value, error = await self._call(step.do, step)
        if error is None:
            await self._record_done(step, value)
        else:
            await self._record_failure(step, error)

    async def _record_done(self, step: PlannedStep, value: Any) -> None:
        engine, claim = self.attempt.engine, self.claim
        bound_to = associated_data(self.attempt.key.id, claim.journal.cycle, step.name)
        encoded, cancelled = await engine.runtime.shield(engine.encode(self.saga.codecs[step.name], value, bound_to))
        if encoded.data is None:
            claim.emit("result_not_stored", f"{step.name}: {encoded.public_reason or encoded.reason}")
        claim.journal = journal.step_done(claim.journal, step.name, encoded.data)
        await claim.write()
        claim.emit("step_done", step.name)
        if cancelled is not None:
            raise cancelled

    async def _record_failure(self, step: PlannedStep, error: Exception) -> None:
        """Write to the journal that `do` raised.

        The step declares which errors mean that it had no effect. After any other error the effect is unknown, and the
        step must be settled. An error that is `final` is the definite answer of the remote API for the step's key. One
        that is `not_applied` is only about this attempt: it does not settle an earlier one.
        """
        claim = self.claim
        final, known = classify(error, step.policy)
        claim.raised = error
        claim.emit("step_failed", step.name, _type_of(error))
        failure = _type_of(error), message_of(error)
        if final or (known and not self._entry(step).unsure):
            claim.journal = journal.step_not_done(claim.journal, step.name, *failure, final=final)
            if isinstance(self._next(), Compensate):
                self._start_compensating(step)
            await claim.write()
        else:  # it is written together with the next intent, or when the saga is parked
            claim.journal = journal.attempt_failed(claim.journal, step.name, *failure)
        if isinstance(self._next(), Do):
            await self._wait_before_retry(step, self._entry(step).attempts)

    async def _verify(self, step: PlannedStep) -> str:
        """Settle an intent without a result by calling `find`. Return why that failed, or an empty string."""
        claim = self.claim
        await self._sleep(step.policy.verify_after / SECOND)  # until then, an earlier attempt may still take effect
        finding, error = await self._call(cast("Callable[..., Any]", step.policy.find), step)  # set by `verify(find)`
        if error is not None:
            claim.raised = error
            return f"verify of step {step.name} raised {format_error(error)}"
        if isinstance(finding, applied):
            await self._record_done(step, finding.value)
        elif finding is not_applied:
            entry = self._entry(step)
            why = (entry.error_type, entry.error) if entry.error_type else ("NotApplied", "verify did not find it")
            claim.journal = journal.step_not_done(claim.journal, step.name, *why)
            await claim.write()
            if isinstance(self._next(), Do):
                await self._wait_before_retry(step, entry.attempts)
        else:
            problem = "was inconclusive" if finding is inconclusive else f"returned {type(finding).__qualname__}"
            return f"verify of step {step.name} {problem}"
        return ""

    def _start_compensating(self, step: PlannedStep) -> None:
        entry = self._entry(step)
        self.claim.journal = journal.compensating(self.claim.journal, entry.error_type, entry.error)
        self.claim.emit("compensating", step.name, entry.error_type)

    async def _undo(self, step: PlannedStep) -> None:
        claim = self.claim
        claim.journal = journal.step_undoing(claim.journal, step.name, self.attempt.record.token)
        await claim.write()
        _, error = await self._call(cast("Callable[..., Any]", step.undo), step)  # a compatible plan has it
        if error is None:
            claim.journal = journal.step_undone(claim.journal, step.name)
            await claim.write()
            claim.emit("step_undone", step.name)
            return
        claim.emit("step_failed", f"undo {step.name}", _type_of(error))
        claim.journal = journal.attempt_failed(claim.journal, step.name, _type_of(error), message_of(error))
        if isinstance(self._next(), Undo):
            await self._wait_before_retry(step, self._entry(step).undo_attempts)

    async def _call(self, call: Callable[..., Any], step: PlannedStep) -> tuple[Any, Exception | None]:
        """Return what the call returns, or the exception that it raises. As a value, even StopIteration survives."""
        attempt = self.attempt
        attempt.step = context = StepContext(
            attempt, self.claim.journal, self._entry(step), self.saga.input, self._results()
        )
        try:
            value = call(context)
            if hasattr(type(value), "__await__"):  # checked on the type: the value's own __getattr__ must not run here
                value = await (value if attempt.engine.runtime.supports_cancellation else _unawaitable(value))
        except Exception as error:  # noqa: BLE001 (the journal records every error)
            return None, error
        finally:
            attempt.step = None
        return value, None

    def _readable_results(self) -> dict[str, Any]:
        """Return the results of all steps. All steps are done, so an unreadable result is logged and left out."""
        readable, unreadable = self._results().readable()
        for name, why in unreadable.items():
            self.claim.emit("result_not_stored", f"{name}: {why}")
        return readable

    def _entry(self, step: PlannedStep) -> JournalEntry:
        return next(entry for entry in self.claim.journal.entries if entry.name == step.name)

    def _results(self) -> StepResults:
        return StepResults(self.claim.journal, self.saga.codecs, self.attempt.key.id, self.attempt.key.text)

    async def _wait_before_retry(self, step: PlannedStep, attempt: int) -> None:
        try:
            delay = step.policy.delay_after(attempt) / SECOND
        except Exception as error:  # noqa: BLE001 (an error in the user's delay function must not stop the saga)
            self.claim.emit("retry_delay_failed", "retried without a delay", error_for_log(error))
            delay = 0.0
        await self._sleep(delay)

    async def _sleep(self, seconds: float) -> None:
        """Sleep in short parts, so that a process that is stopping leaves the saga to another one."""
        engine = self.attempt.engine
        while seconds > 0:
            if engine.stopping:
                raise Stopping("this process is stopping; another one continues the saga", key=self.attempt.key.text)
            await engine.runtime.sleep(min(seconds, STOP_CHECK_INTERVAL))
            seconds -= STOP_CHECK_INTERVAL


def _type_of(error: BaseException) -> str:
    return type(error).__qualname__


async def _unawaitable(value: Any) -> Any:
    """Reject an awaitable in a sync saga. A coroutine has not begun, so it is closed."""
    if isinstance(value, CoroutineType):
        value.close()
    raise ConfigurationError("a step returned an awaitable, which a sync saga cannot await", hint="use AsyncOnce")
