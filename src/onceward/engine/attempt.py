"""A claim that we hold: what may be done with it, and how it ends."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol, Self

from onceward.errors import (
    AlreadyCompleted,
    ConfigurationError,
    LeaseLost,
    LeaseOverdue,
    OutcomeUnknown,
    StoreError,
    VersionSkew,
)
from onceward.keys.key import Key, derived_key
from onceward.keys.weight import is_light
from onceward.protocol.capabilities import JoinedStore, JoinsTransaction
from onceward.protocol.record import AfterCrash, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Fail, Park, Release, Renewal, Verdict
from onceward.protocol.runtime import Canceller
from onceward.protocol.unstored import unstored_note
from onceward.results.codec import Encoded

from .engine import Engine
from .error_text import format_error, message_of
from .job import Job
from .settlement import SettlingLease

ACQUIRED, COMPLETED = Verdict.ACQUIRED, RecordState.COMPLETED
NO_RESULT = object()
"""The work has not returned."""

_current: ContextVar[Attempt | None] = ContextVar("onceward_current_claim", default=None)


_enter, _reset = _current.set, _current.reset
current = _current.get
"""The innermost claim whose work we are in; None if we are in none."""


class CurrentStep(Protocol):
    """A part of the work that has keys of its own, and is repeated by itself: a step of a saga."""

    def derived_key(self, step: str) -> str: ...


class Attempt(SettlingLease):
    """One claim, from the question to its settlement. Whatever interrupts it, nothing is kept that nobody uses."""

    acquired = False  # the store has said so: `record` is ours
    refusal: Answer | None  # the store has said no
    joined: JoinedStore | None = None  # the caller's transaction that the result was written in
    unconfirmed = False  # the effect is done, but the store did not answer
    begun = False  # before that nothing can have happened, and the key may be given back
    raised: BaseException | None  # by the work, and not settled yet
    result: Any = NO_RESULT
    outer: Attempt | None = None
    step: CurrentStep | None = None  # which part of the work is being done
    at_end: dict[str, str]  # what is noted on completion
    canceller: Canceller | None = None  # of work that may still be cancelled, and has to be told when it is over

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine = engine
        self.job = job
        self.key: Key = job.key
        self.lease = job.policy.lease
        # Looked at in every call: what stands in the object itself is found at once, a default of the class is not.
        self.is_simple = True
        self.raised = self.refusal = None
        self.at_end = job.at_end

    # ── the question ──

    def request(self, nonce: bytes = b"") -> ClaimRequest:
        """The nonce stays empty unless a grant may be ours. The same again, if its nonce is given."""
        engine, job, key = self.engine, self.job, self.key
        policy, new_nonce = job.policy, engine.nonce
        self.nonce = nonce = nonce or new_nonce()
        return ClaimRequest(
            key.id,
            key.scope.text,
            key.text,
            nonce,
            self.lease,
            job.fingerprint,
            job.arguments,
            policy.after_crash,
            policy.max_attempts,
            engine.owner.name,
            job.note,
        )

    def apply_answer(self, answer: Answer) -> None:
        if answer.verdict is ACQUIRED and answer.record is not None:
            self.record, self.acquired = answer.record, True
        else:
            self.nonce = b""

    # ── what the work may ask ──

    def derived_key(self, step: str) -> str:
        if self.step is not None:
            return self.step.derived_key(step)
        return derived_key(self.key.id, self.record.cycle, step)

    def check(self) -> None:
        """Raise if the work should stop: somebody else owns it, or the store has not confirmed our lease in time."""
        if self.inherited:
            self.refuse_inherited()
        if self.lost:
            raise LeaseLost(
                "somebody else owns this key now", key=self.key.text, hint="stop: nothing that we write counts"
            )
        if self.overdue or self.engine.runtime.monotonic() >= self.ends:
            raise LeaseOverdue("the store has not confirmed our lease in time; it may still recover", key=self.key.text)

    def covers(self, engine: Engine, id: bytes) -> bool:
        """Whether this claim, or one around it, is of that key in that store."""
        attempt: Attempt | None = self
        while attempt is not None:
            if attempt.key.id == id and attempt.engine.heartbeat is engine.heartbeat and attempt.settled is None:
                return True
            attempt = attempt.outer
        return False

    def __enter__(self) -> Self:
        self.outer = current()
        self._variable = _enter(self)
        return self

    def enter_task(self) -> None:
        """As `__enter__`, in a task of its own: it is left with the task, whose context that is."""
        self.outer = current()
        _current.set(self)

    def __exit__(self, *_: object) -> None:
        self.exit()

    def exit(self) -> None:
        """As `__exit__`, to which it makes no difference what was raised."""
        if not self.closed:
            self.engine.heartbeat.drop(self)  # however it ended, nobody is left to settle it: let it lapse
        try:
            _reset(self._variable)
        except ValueError:  # the block was left in another context than it was entered (an async fixture does that)
            _current.set(self.outer)

    def leave(self) -> None:
        """As `__exit__`, but after an interrupt, which may have come before, between or behind its steps."""
        self.engine.heartbeat.drop(self)
        if _current.get() is self:
            _current.set(self.outer)

    def take_error(self) -> BaseException:
        """What the work raised, which is settled from here on: its traceback leads to us, so we do not keep it."""
        error, self.raised = self.raised, None
        return error  # type: ignore[return-value]  # asked for only if there is one

    def begin(self) -> None:
        """The work begins here: if the key is lost meanwhile it is cancelled, where that was asked for."""
        self.begun = True
        if self.job.policy.on_lost == "cancel":
            self.cancel_if_lost()

    def cancel_if_lost(self) -> None:
        self.is_simple = False
        self.canceller = self.on_lost = self.engine.runtime.canceller()

    def end(self, error: BaseException | None) -> bool:
        """The work is over; True if it was cancelled because the key was lost."""
        return self.canceller is not None and self.canceller.work_ended(error)

    # ── verbs ──

    async def annotate(self, note: dict[str, str]) -> None:
        """Write small metadata onto the record at once; it survives a take-over."""
        renewal = Renewal(self.key.id, self.record.token, self.record.nonce, self.job.policy.lease, note)
        answer = (await self.engine.store.renew([renewal], timeout=self.job.policy.call_timeout))[0]
        self._raise_unless_ok(answer)
        written = answer.record
        if written is not None and (written.token, written.updated_at) >= (self.record.token, self.record.updated_at):
            self.record = written  # else the answer is late: a step may note while its saga writes, under a newer token

    async def complete(self, value: Any) -> Answer:
        """Record the result. Repeating it with an equal value is fine."""
        self._refuse_in_step()
        try:
            answer = await self.record_result(value)
        except StoreError as error:
            self.unconfirmed = True
            raise OutcomeUnknown(
                "the effect was done, but the store did not confirm the record in time", key=self.key.text, value=value
            ) from error
        return self._raise_unless_ok(answer)

    def _refuse_in_step(self) -> None:
        if self.step is not None:
            raise ConfigurationError(
                "a step cannot complete its saga: others may be left",
                key=self.key.text,
                hint="return the step's result, and let the saga go on",
            )

    def record_result(self, value: Any) -> Coroutine[Any, Any, Answer]:
        """Complete with this value, when it is awaited."""
        if is_light(value):
            return self.settle(self.settlement(self.job.codec.encode(value, self.key.id)), COMPLETED)
        return self._record_large(value)

    async def _record_large(self, value: Any) -> Answer:
        """A cancellation while it is encoded is raised afterwards, too."""
        completion, cancelled = await self.engine.runtime.shield(self.completion(value))
        try:
            answer = await self.settle(completion, RecordState.COMPLETED)
        except Exception as error:
            if cancelled is not None:
                raise cancelled from error
            raise
        if cancelled is not None:
            raise cancelled
        return answer

    def small_completion(self, value: Any) -> Complete:
        """The completion with a light value, made at once."""
        return self.settlement(self.job.codec.encode(value, self.key.id))

    async def completion(self, value: Any) -> Complete:
        """The settlement for this value. Its bytes are made once and resent as they are."""
        return self.settlement(await self.engine.encode(self.job.codec, value, self.key.id))

    def settlement(self, encoded: Encoded) -> Complete:
        """The completion with a result that is encoded already."""
        job, record, data = self.job, self.record, encoded.data
        note = self.at_end
        largest = self.engine.largest
        if data is None or (largest is not None and len(data) > largest):
            data, note = None, self._without_result(encoded, note)
        window = job.policy.window
        return Complete(
            record.id,
            record.token,
            record.nonce,
            data,
            encoded.digest,
            data is not None,
            window.always or window.validity(record.claimed_at),
            note,
            record,
            True,  # noqa: FBT003 (briefly)
        )

    def _without_result(self, encoded: Encoded, note: dict[str, str]) -> dict[str, str]:
        """The effect is done, so it is completed without: the note says why, unless that was declared."""
        if not self.job.policy.store_result:
            return note
        reason, brief = encoded.reason, encoded.brief
        if encoded.data is not None:
            reason = (
                f"it takes {len(encoded.data)} bytes, and a record of this store has room for {self.engine.largest}"
            )
        self.engine.emit("result_not_stored", self.key, self.record, reason=reason)
        return {**note, **unstored_note(brief or reason)}

    async def complete_in(self, connection: Any, value: Any) -> None:
        """Write the result inside the caller's transaction, fenced: if we were replaced, the caller must roll back."""
        self._refuse_in_step()
        store = self.engine.store
        if not isinstance(store, JoinsTransaction):
            raise ConfigurationError(
                f"{store.name} cannot join a transaction of yours",
                key=self.key.text,
                hint="use sqlite:///…, postgresql://… or firestore://… for both",
            )
        if self.record.after_crash is not AfterCrash.RERUN:
            raise ConfigurationError(
                "complete_in makes effect and record one, so a crash leaves neither: after_crash must be 'rerun'",
                key=self.key.text,
            )
        self.check()
        joined = store.join(connection, self.engine.runtime)
        answer = (await joined.settle([await self.completion(value)], timeout=self.job.policy.call_timeout))[0]
        self._raise_unless_ok(answer)
        self.is_simple, self.joined = False, joined
        self.settling = not joined.exclusive  # once it is committed, a renewal finds nothing to renew: all is well
        await self.engine.renew_due(joined, but=self)

    async def fail(self, error: BaseException, *, final: bool, known: bool, error_type: str = "") -> Answer:
        return await self.settle(self._failure(error, final, known, error_type), RecordState.FAILED)

    def fail_later(self, error: BaseException, *, final: bool, known: bool) -> None:
        """The caller's open transaction keeps us from writing: the keeper does, once it is over and not committed."""
        self.abandon()
        self.engine.heartbeat.settle_later(self, self._failure(error, final, known))

    def _failure(self, error: BaseException, final: bool, known: bool, error_type: str = "") -> Fail:  # noqa: FBT001 (as in Fail)
        policy = self.job.policy
        return Fail(
            self.key.id,
            self.record.token,
            self.record.nonce,
            error_type or type(error).__qualname__,
            message_of(error),
            final,
            known,
            self._delay(),
            policy.max_attempts,
            policy.window.validity(self.record.claimed_at),
        )

    def _delay(self) -> int:
        """µs before the next attempt. A `retry_delay` that raises must not hide the failure that it is asked about."""
        try:
            return self.job.policy.delay_after(self.record.attempt)
        except Exception as error:  # noqa: BLE001 (it is the user's own function)
            self.engine.emit(
                "retry_delay_failed", self.key, self.record, reason="retried without a delay", error=format_error(error)
            )
            return 0

    async def park(self, error_type: str, error: str) -> Answer:
        return await self.settle(
            Park(self.key.id, self.record.token, self.record.nonce, error_type, error), RecordState.PARKED
        )

    async def release(self) -> Answer:
        return await self.settle(Release(self.key.id, self.record.token, self.record.nonce), RecordState.FREE)

    async def expire_lease(self) -> None:
        """End the lease now: whoever claims next decides as after a crash. No answer: it ends by itself."""
        self.abandon()
        renewal = Renewal(self.key.id, self.record.token, self.record.nonce, 0)
        with suppress(StoreError):
            await self.engine.shield(self.engine.store.renew([renewal], timeout=self.job.policy.call_timeout))

    def _raise_unless_ok(self, answer: Answer) -> Answer:
        match answer.verdict:
            case Verdict.OK:
                return answer
            case Verdict.CONFLICT:
                raise AlreadyCompleted("this claim was completed before with another result", key=self.key.text)
            case Verdict.SKEW:
                raise VersionSkew(
                    "the record was written by a newer Onceward", key=self.key.text, hint="upgrade this process"
                )
            case _:
                raise LeaseLost("somebody else owns this key now; nothing was changed", key=self.key.text)


def _name_attributes() -> None:
    """Python lays objects of a class out alike, by the names that the first few of them have.

    A batch makes a hundred before any gets further than its question: then each would need a dict of its own.
    """
    one: Any = Attempt.__new__(Attempt)
    for name in (
        *("engine", "job", "key", "lease", "nonce", "since", "record", "acquired", "renew_at", "ends"),
        *("outer", "_variable", "begun", "result", "settling", "settled", "closed"),
        *("is_simple", "raised", "refusal", "at_end"),
    ):
        setattr(one, name, None)


_name_attributes()
