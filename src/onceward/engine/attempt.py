"""An attempt: one claim in this process, from the request to its settlement, and what may be done with it."""

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
from onceward.keys.small import is_small
from onceward.protocol.capabilities import JoinedStore
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
"""Return the innermost attempt whose work this code is part of, or None."""


class CurrentStep(Protocol):
    """A step of a saga: a part of the work that has its own derived keys and is retried separately."""

    def derived_key(self, step: str) -> str: ...


class Attempt(SettlingLease):
    """One claim, from the request to its settlement."""

    acquired = False  # the store granted it: `record` is ours
    joined: JoinedStore | None = None  # the caller's transaction in which the result was written
    unconfirmed = False  # the effect happened, but the store did not answer
    begun = False  # before the work begins, nothing can have happened, and the key may be released
    raised: BaseException | None  # by the work; not settled yet
    result: Any = NO_RESULT
    outer: Attempt | None = None
    step: CurrentStep | None = None  # the saga step that is running
    at_end: dict[str, str]  # written to the note on completion
    canceller: Canceller | None = None  # must be informed when the work ends

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine = engine
        self.job = job
        self.key: Key = job.key
        self.lease = job.policy.lease
        # Set on the instance, because every call reads them and class attributes are slower.
        self.is_simple = True
        self.raised = None
        self.at_end = job.at_end

    # ── the claim ──

    def request(self, nonce: bytes = b"") -> ClaimRequest:
        """Build the claim request with a new nonce, or repeat one with the given nonce.

        `self.nonce` is empty while no claim of ours can have been granted.
        """
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

    # ── for the work ──

    def derived_key(self, step: str) -> str:
        if self.step is not None:
            return self.step.derived_key(step)
        return derived_key(self.key.id, self.record.cycle, step)

    def check(self) -> None:
        """Raise if the work should stop: another worker owns the key, or the lease was not renewed in time."""
        if self.inherited:
            self.refuse_inherited()
        if self.lost:
            raise LeaseLost(
                "another worker owns this key now", key=self.key.text, hint="stop: this result can no longer be stored"
            )
        if self.overdue or self.engine.runtime.monotonic() >= self.ends:
            raise LeaseOverdue("the lease was not renewed in time; a later renewal may succeed", key=self.key.text)

    def covers(self, engine: Engine, id: bytes) -> bool:
        """Return whether this claim, or one around it, holds that key in that store."""
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
        """Like `__enter__`, in the attempt's own task: the context ends with the task, so no exit is needed."""
        self.outer = current()
        _current.set(self)

    def __exit__(self, *_: object) -> None:
        self.exit()

    def exit(self) -> None:
        """Like `__exit__`, which ignores exceptions anyway."""
        if not self.closed:
            self.engine.heartbeat.drop(self)  # no code is left that settles it: let the lease expire
        try:
            _reset(self._variable)
        except ValueError:  # the block was left in another context than it was entered in, as async fixtures do
            _current.set(self.outer)

    def leave(self) -> None:
        """Like `__exit__`, after an interrupt that may have come before, during or after `__exit__`."""
        self.engine.heartbeat.drop(self)
        if _current.get() is self:
            _current.set(self.outer)

    def take_error(self) -> BaseException:
        """Return and drop the error that the work raised: its traceback refers to this object, a reference cycle."""
        error, self.raised = self.raised, None
        return error  # type: ignore[return-value]  # called only if there is one

    def begin(self) -> None:
        """Mark the work as begun. With `on_lost="cancel"`, cancel it if the key is lost."""
        self.begun = True
        if self.job.policy.on_lost == "cancel":
            self.cancel_if_lost()

    def cancel_if_lost(self) -> None:
        self.is_simple = False
        self.canceller = self.on_lost = self.engine.runtime.canceller()

    def end(self, error: BaseException | None) -> bool:
        """Note that the work has ended. True: it was cancelled because the key was lost."""
        return self.canceller is not None and self.canceller.work_ended(error)

    # ── verbs ──

    async def annotate(self, note: dict[str, str]) -> None:
        """Write small metadata to the record now. It survives a takeover by another worker."""
        renewal = Renewal(self.key.id, self.record.token, self.record.nonce, self.job.policy.lease, note)
        answer = (await self.engine.store.renew([renewal], timeout=self.job.policy.call_timeout))[0]
        self._raise_unless_ok(answer)
        written = answer.record
        if written is not None and (written.token, written.updated_at) >= (self.record.token, self.record.updated_at):
            self.record = written  # only if it is newer: a saga step may annotate while its saga writes

    async def complete(self, value: Any) -> Answer:
        """Record the result. Repeating it with an equal value succeeds."""
        self._refuse_in_step()
        try:
            answer = await self.record_result(value)
        except StoreError as error:
            self.unconfirmed = True
            raise OutcomeUnknown(
                "the work was done, but the store did not confirm the result in time", key=self.key.text, value=value
            ) from error
        return self._raise_unless_ok(answer)

    def _refuse_in_step(self) -> None:
        if self.step is not None:
            raise ConfigurationError(
                "a step cannot complete its saga: other steps may remain",
                key=self.key.text,
                hint="return the step's result; the saga continues with the next step",
            )

    def record_result(self, value: Any) -> Coroutine[Any, Any, Answer]:
        """Return a coroutine that completes the claim with this value."""
        if is_small(value):
            return self.settle(self.settlement(self.job.codec.encode(value, self.key.id)), COMPLETED)
        return self._record_large(value)

    async def _record_large(self, value: Any) -> Answer:
        """Record a large result. A cancellation during encoding is raised afterwards, too."""
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
        """Return the completion with a small value."""
        return self.settlement(self.job.codec.encode(value, self.key.id))

    async def completion(self, value: Any) -> Complete:
        """Return the completion with this value. It is encoded once; retries send the same bytes."""
        return self.settlement(await self.engine.encode(self.job.codec, value, self.key.id))

    def settlement(self, encoded: Encoded) -> Complete:
        """Return the completion with an encoded result."""
        job, record, data = self.job, self.record, encoded.data
        note = self.at_end
        largest = self.engine.max_result_bytes
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
            window.constant_validity or window.validity(record.claimed_at),
            note,
        )

    def _without_result(self, encoded: Encoded, note: dict[str, str]) -> dict[str, str]:
        """Return the note for a completion without its result. It says why, unless `store_result=False`."""
        if not self.job.policy.store_result:
            return note
        reason, brief = encoded.reason, encoded.brief
        if encoded.data is not None:
            room = self.engine.max_result_bytes
            reason = f"it takes {len(encoded.data)} bytes, and a record of this store has room for {room}"
        self.engine.emit("result_not_stored", self.key, self.record, reason=reason)
        return {**note, **unstored_note(brief or reason)}

    async def complete_in(self, connection: Any, value: Any) -> None:
        """Write the result in the caller's transaction. Raise if another worker took over: the caller rolls back."""
        self._refuse_in_step()
        store = self.engine.store
        if store.transactions is None:
            raise ConfigurationError(
                f"{store.name} cannot join your transaction",
                key=self.key.text,
                hint="use sqlite:///…, postgresql://… or firestore://… for both",
            )
        if self.record.after_crash is not AfterCrash.RERUN:
            raise ConfigurationError(
                "complete_in commits effect and record together, so a crash leaves none: after_crash must be 'rerun'",
                key=self.key.text,
            )
        self.check()
        joined = store.transactions.join(connection, self.engine.runtime)
        answer = (await joined.settle([await self.completion(value)], timeout=self.job.policy.call_timeout))[0]
        self._raise_unless_ok(answer)
        self.is_simple, self.joined = False, joined
        self.settling = not joined.exclusive  # after the commit, a renewal gets LOST: ignore that
        await self.engine.renew_due(joined, but=self)

    async def fail(self, error: BaseException, *, final: bool, known: bool, error_type: str = "") -> Answer:
        return await self.settle(self._failure(error, final, known, error_type), RecordState.FAILED)

    def fail_later(self, error: BaseException, *, final: bool, known: bool) -> None:
        """Let the heartbeat thread record the failure: the caller's open transaction blocks us from writing."""
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
        """Return the µs before the next attempt. A `retry_delay` that raises must not hide the work's failure."""
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
        """End the lease now: the next claim then handles it as a crash. If the store fails, the lease expires later."""
        self.abandon()
        renewal = Renewal(self.key.id, self.record.token, self.record.nonce, 0)
        with suppress(StoreError):
            await self.engine.shield(self.engine.store.renew([renewal], timeout=self.job.policy.call_timeout))

    def _raise_unless_ok(self, answer: Answer) -> Answer:
        match answer.verdict:
            case Verdict.OK:
                return answer
            case Verdict.CONFLICT:
                raise AlreadyCompleted("this claim was already completed with another result", key=self.key.text)
            case Verdict.SKEW:
                raise VersionSkew(
                    "the record was written by a newer Onceward", key=self.key.text, hint="upgrade this process"
                )
            case _:
                raise LeaseLost("another worker owns this key now; nothing was changed", key=self.key.text)


def _name_attributes() -> None:
    """Set every attribute that a usual call sets, so that Python shares the key layout of all instances' dicts.

    The layout comes from the first instances. In a batch, a hundred are created before any gets all its attributes.
    """
    attempt: Any = Attempt.__new__(Attempt)
    for name in (
        *("engine", "job", "key", "lease", "nonce", "since", "record", "acquired", "renew_at", "ends"),
        *("outer", "_variable", "begun", "result", "settling", "settled", "closed"),
        *("is_simple", "raised", "at_end"),
    ):
        setattr(attempt, name, None)


_name_attributes()
