"""Work inside the caller's own transaction: claim, effect and result commit together, or not at all.

A joined claim has no lease and no heartbeat: other workers cannot see it before the caller commits, and a rollback
undoes it. Each job runs in a savepoint: if the handler raises, its writes are undone, and the transaction stays usable.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from msgspec.structs import replace

from onceward.errors import ClaimError, ConfigurationError, LeaseLost, StoreError, StoreUnavailable
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.outcome import Executed, Failed, Outcome
from onceward.protocol.policy import SECOND
from onceward.protocol.requests import Answer, ClaimRequest, Park, Verdict

from . import settle
from .acquire import FIRST_PAUSE, LONGEST_PAUSE, emit_no_answer, refuse_reentry
from .attempt import NO_RESULT, OWNED, REFUSED, SETTLED, SETTLING, UNKNOWN, Attempt
from .engine import Engine
from .error_text import message_of
from .job import Job
from .joined import current_block, current_job, enclosing_block
from .refusal import refusal_outcome
from .rollout import count_would_skip
from .runner import call_handler, execute, is_protected

LOST_HINT = "repeat your transaction on a new connection"
ENDED_HINT = "do not commit or roll back inside the handler: the transaction belongs to its caller"
PARKED_REASON = "the handler ended the caller's transaction and then failed"


class Transaction:
    """The caller's transaction during the block. Jobs may nest but not overlap: a savepoint undoes all after it."""

    closed = False
    found: Any = None  # the caller's connection, if a finder returned it and the caller did not name it

    def __init__(self, engine: Engine, store: JoinedStore, since: float) -> None:
        self.engine = engine
        self.store = store
        self.since = since
        self.jobs: list[JoinedJob] = []
        self.outer = enclosing_block()
        current_block.set(self)

    def leave(self) -> None:
        """Close the block, perhaps in another context than `enter` (async fixtures), or before a block inside it."""
        self.closed = True
        current_block.set(enclosing_block())


async def join(engine: Engine, connection: Any) -> Transaction:
    """Join the caller's transaction."""
    since = engine.runtime.monotonic()
    try:
        await engine.ready()
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"the store could not be opened inside your transaction ({error})",
            hint="if your transaction blocks it, open the store earlier: call once.migrate() at process start",
        ) from error
    transactions = engine.store.transactions
    if transactions is None:
        raise ConfigurationError(
            f"{engine.store.name} cannot join your transaction",
            hint="use sqlite:///…, postgresql://… or firestore://… for both",
        )
    return Transaction(engine, transactions.join(connection, engine.runtime), since)


async def finish_transaction(engine: Engine, transaction: Transaction) -> None:
    """Finish the block: write the renewals that the transaction blocked, and warn if it took long."""
    if not transaction.store.exclusive:
        return
    took = engine.runtime.monotonic() - transaction.since
    await engine.renew_due(transaction.store)
    shortest = engine.heartbeat.shortest_lease()
    if shortest is not None and took > shortest / 3:
        engine.warn_slow_transaction(took, shortest)


async def execute_in(engine: Engine, connection: Any, job: Job) -> Outcome[Any]:
    """Do one job in the transaction that is open on this connection."""
    transaction = await join(engine, connection)
    transaction.found = connection
    try:
        outcome = await execute_within(engine, transaction, job)
    finally:
        transaction.leave()
    await finish_transaction(engine, transaction)
    return outcome


async def execute_within(engine: Engine, transaction: Transaction, job: Job) -> Outcome[Any]:
    """Do the job in this transaction, or return the outcome that says why not. A duplicate changes nothing."""
    if not is_protected(engine, job):
        return await execute(engine, job)
    refuse_reentry(engine, job)
    one = JoinedJob(engine, transaction.store, job)
    one.refuse_overlap(transaction.jobs)
    transaction.jobs.append(one)
    around = current_job.set(one)
    try:
        return await one.execute()
    finally:
        one.closed = True
        current_job.reset(around)
        transaction.jobs.remove(one)


class HandlerStopped(Exception):
    """Carries the StopIteration of a handler out of a coroutine, where Python would make it a RuntimeError."""

    def __init__(self, stop: StopIteration) -> None:
        super().__init__()
        self.stop = stop


class JoinedJob:
    """One job in the caller's transaction."""

    closed = False

    def __init__(self, engine: Engine, joined: JoinedStore, job: Job) -> None:
        self.engine = engine
        self.joined = joined
        self.job = job
        self.outer = current_job.get()
        self.attempt: Attempt | None = None
        self.value: Any = NO_RESULT

    def refuse_overlap(self, jobs: list[JoinedJob]) -> None:
        around = self.outer
        while jobs and around is not jobs[-1]:
            if around is None:
                raise ConfigurationError(
                    f"another job ({jobs[-1].job.key.text}) is running in this transaction",
                    key=self.job.key.text,
                    hint="run one job at a time in a transaction: await each before the next, without gather",
                )
            around = around.outer

    async def execute(self) -> Outcome[Any]:
        try:
            await self.joined.begin(timeout=self.job.policy.call_timeout)
        except StoreError as error:
            self._raise_unclaimed(error)
        try:
            outcome = await self._claim_and_run()
            kept = await self.joined.keep()
        except BaseException as raised:
            cause = raised.stop if isinstance(raised, HandlerStopped) else raised
            await self._undo(cause)
            if not isinstance(cause, Exception):
                raise
            self._emit_failed(cause)
            return Failed(
                key=self.job.key.text,
                reason=self.job.policy.reasons.failed,
                error_type=type(cause).__qualname__,
                error=message_of(cause),
                exception=cause,
            )
        if not kept:
            await (self._raise_lost(None) if self.joined.is_lost() else self._raise_ended(None))
        if self.attempt is not None:
            self.engine.emit("completed", self.job.key, self.attempt.record, reason="within")
        return outcome

    def _emit_failed(self, error: Exception) -> None:
        if self.attempt is not None:
            name = type(error).__qualname__
            self.engine.emit("failed", self.job.key, self.attempt.record, reason="within", error=name)
        elif isinstance(error, StoreError):
            emit_no_answer(self.engine, self.job.key, error)

    async def _claim_and_run(self) -> Outcome[Any]:
        engine, job = self.engine, self.job
        attempt = Attempt(engine, job)
        answer = await self._claim(replace(attempt.claim_request(), lease=None))
        record = answer.record
        if answer.verdict is not Verdict.ACQUIRED or record is None:
            return await self._refused(attempt, answer)
        self.attempt = attempt
        attempt.record = record
        attempt.move(OWNED)
        attempt.ends = math.inf  # there is no lease
        if record.ask_first:
            raise ConfigurationError(
                "an earlier attempt outside this transaction must be verified first",
                key=job.key.text,
                hint="run it once without within()",
            )
        attempt.begin()
        try:
            value = call_handler(job)
        except StopIteration as error:
            raise HandlerStopped(error) from None
        self.value = value = await value if job.is_async and hasattr(value, "__await__") else value
        return await self._complete(attempt, value)

    async def _refused(self, attempt: Attempt, answer: Answer) -> Outcome[Any]:
        """Return why the claim was refused. In the mode observe, run the handler anyway."""
        outcome = await refusal_outcome(self.engine, self.job, answer)
        if self.engine.rollout.enforces:
            return outcome
        attempt.move(REFUSED)
        attempt.unprotect("observe")
        count_would_skip(attempt, outcome)
        value = call_handler(self.job)
        value = await value if self.job.is_async and hasattr(value, "__await__") else value
        return Executed(key=self.job.key.text, value=value, reason=self.job.policy.reasons.executed)

    async def _claim(self, request: ClaimRequest) -> Answer:
        """Claim the key, and wait while another worker is processing it, unless this transaction blocks that worker."""
        runtime, policy = self.engine.runtime, self.job.policy
        deadline = runtime.monotonic() + policy.wait / SECOND
        pause = FIRST_PAUSE
        while True:
            answer = (await self.joined.claim([request], timeout=policy.call_timeout))[0]
            waits = answer.verdict is Verdict.RUNNING and self._may_wait()
            left = deadline - runtime.monotonic()
            if not waits or left <= 0:
                if waits and policy.wait:
                    self.engine.emit("claim_failed", self.job.key, answer.record, reason="wait limit")
                return answer
            await runtime.sleep(min(left, pause * (0.5 + runtime.jitter() / 2)))
            pause = min(pause * 1.6, LONGEST_PAUSE)

    def _may_wait(self) -> bool:
        waits = self.job.policy.on_running == "wait" and not self.joined.exclusive
        return waits and self.engine.rollout.enforces

    async def _complete(self, attempt: Attempt, value: Any) -> Outcome[Any]:
        lost = LeaseLost("the claim disappeared from its own transaction", key=self.job.key.text, hint=ENDED_HINT)
        if not self.joined.is_open():
            raise lost
        completion = await settle.encoded_completion(attempt, value)
        attempt.move(SETTLING)
        try:
            answer = (await self.joined.settle([completion], timeout=self.job.policy.call_timeout))[0]
        except BaseException:
            attempt.move(UNKNOWN)
            raise
        if answer.verdict is not Verdict.OK or answer.record is None:
            raise lost
        attempt.move(SETTLED)
        attempt.record = answer.record
        return Executed(
            key=self.job.key.text,
            value=value,
            reason=self.job.policy.reasons.executed,
            attempt=attempt.record.attempt,
            token=attempt.record.token,
        )

    async def _undo(self, error: BaseException) -> None:
        """Undo what was written since the savepoint. Raise if that is impossible, because the transaction has ended."""
        try:
            undone = await self.joined.undo()
        except StoreError as failed:
            if not self.joined.is_lost():
                raise failed from error
            undone = False
        if undone:
            return
        if self.joined.is_lost():
            await self._raise_lost(error)
        if self.attempt is None:  # the handler never ran, so it cannot have ended the transaction
            self._raise_unclaimed(error)
        await self._raise_ended(error)

    # ── the connection was lost ──

    async def _raise_lost(self, error: BaseException | None) -> NoReturn:
        """Raise because the caller's connection broke, or was closed at a deadline."""
        if self.attempt is None and error is not None:
            self._raise_unclaimed(error)
        when = "while the handler ran" if self.value is NO_RESULT else "after the handler had returned"
        try:
            state = await self._settle_ended()
        except StoreError:  # probably for the same reason
            state = "the server rolls back what the handler has not committed itself"
        message = f"the connection of your transaction was lost {when}; {state}"
        if error is not None and not isinstance(error, Exception):
            error.add_note(f"{message} → {LOST_HINT}")
            raise error
        lost = StoreUnavailable(message, key=self.job.key.text, hint=LOST_HINT)
        self._emit_failed(lost)
        raise lost from error

    def _raise_unclaimed(self, error: BaseException) -> NoReturn:
        """Raise the error that ended the transaction before the handler ran."""
        if isinstance(error, StoreError):
            error.with_key(self.job.key.text)
            emit_no_answer(self.engine, self.job.key, error)
        raise error

    # ── the handler ended the transaction ──

    async def _raise_ended(self, error: BaseException | None) -> NoReturn:
        """Settle and raise. The handler may have committed its claim, which has no lease and would never expire."""
        message = f"the transaction was ended inside the handler; {await self._settle_ended()}"
        if error is not None and not isinstance(error, Exception):
            error.add_note(f"{message} → {ENDED_HINT}")
            raise error
        own = None if self.value is not NO_RESULT else error  # only if the handler itself raised it
        raise ClaimError(message, key=self.job.key.text, hint=ENDED_HINT) from own

    async def _settle_ended(self) -> str:
        attempt = self.attempt
        if attempt is None:
            return "nothing was claimed"
        reply = await self.engine.store.read([attempt.key.id], timeout=self.job.policy.call_timeout)
        seen, mine = reply[0].record, attempt.record
        if seen is None or (seen.token, seen.nonce) != (mine.token, mine.nonce):
            if self.joined.is_open():  # perhaps only a savepoint was ended, and our claim is still in the transaction
                parked = Park(mine.id, mine.token, mine.nonce, "TransactionEnded", PARKED_REASON)
                await self.joined.settle([parked], timeout=self.job.policy.call_timeout)
            return "nothing of it was committed"
        continued = await self.joined.abandon()  # what the handler wrote since would block us
        if not continued and self.value is not NO_RESULT:
            await settle.record_result(attempt, self.value)
            return "its writes are committed, and recorded as completed"
        await settle.park(attempt, "TransactionEnded", PARKED_REASON)
        return "some of its writes may be committed, so the key is parked: check them, then resolve it"
