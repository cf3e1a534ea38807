"""Work inside the caller's own transaction: claim, effect and result commit together, or not at all.

No lease and no keeper: until the caller commits, nobody else can see the claim, and a rollback undoes it. The claim
stands behind a savepoint, so that a handler that raises takes its writes along and the transaction stays usable.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from onceward.errors import ConfigurationError, LeaseLost
from onceward.model.outcome import Executed, Failed, Outcome
from onceward.model.policy import SECOND
from onceward.model.record import Complete, Record, Renewal, Verdict
from onceward.ports import JoinedStore, JoinsTransaction

from . import switch
from .acquire import outcome_of, refuse_reentry
from .engine import Engine
from .execute import awaited, disabled
from .held import message_of
from .job import Job


async def join(engine: Engine, connection: Any) -> JoinedStore:
    """The store as seen from inside the caller's transaction."""
    await engine.ready()
    if not isinstance(engine.store, JoinsTransaction):
        raise ConfigurationError(
            f"{engine.store.name} cannot join a transaction of yours", hint="use sqlite:///… for both"
        )
    return engine.store.join(connection, engine.world)


async def execute_within(engine: Engine, joined: JoinedStore, job: Job) -> Outcome[Any]:
    """Do the job in this transaction, or say why not. A duplicate changes nothing in it."""
    if switch.off:
        return await disabled(engine, job)
    refuse_reentry(engine, job)
    await joined.begin()
    try:
        outcome = await _claim_and_run(engine, joined, job)
        await joined.keep()
    except Exception as error:  # noqa: BLE001 (travels as a value like every handler's exception)
        await joined.undo()
        return Failed(key=job.key.text, error_type=type(error).__qualname__, error=message_of(error), exception=error)
    except BaseException:
        await joined.undo()
        raise
    return outcome


async def _claim_and_run(engine: Engine, joined: JoinedStore, job: Job) -> Outcome[Any]:
    request = job.request(engine.world.nonce(), engine.owner(), leased=False)
    answer = (await joined.claim([request], timeout=job.policy.call_timeout))[0]
    record = answer.record
    if answer.verdict is not Verdict.ACQUIRED or record is None:
        return outcome_of(engine, job, answer)
    if record.ask_first:
        raise ConfigurationError(
            "an earlier attempt outside of this transaction must be verified first",
            key=job.key.text,
            hint="run it once without within()",
        )
    value = job.call(*job.args, **job.kwargs)
    if job.awaits or type(value) is CoroutineType:
        value = await awaited(job, value)
    return await _complete(engine, joined, job, record, value)


async def _complete(engine: Engine, joined: JoinedStore, job: Job, record: Record, value: Any) -> Outcome[Any]:
    encoded = job.codec.encode(value, job.key.id)
    stored = encoded.data is not None
    validity = job.policy.window.validity(record.claimed_at)
    completion = Complete(record.id, record.token, record.nonce, encoded.data, encoded.digest, stored, validity)
    answer = (await joined.settle([completion], timeout=job.policy.call_timeout))[0]
    if answer.verdict is not Verdict.OK:
        raise LeaseLost(
            "the claim vanished from its own transaction",
            key=job.key.text,
            hint="do not commit or roll back inside the handler",
        )
    if not stored and job.policy.store_result:
        engine.tell("result_not_stored", job.key, answer.record, reason=encoded.reason)
    engine.tell("completed", job.key, answer.record, reason="within")
    return Executed(key=job.key.text, value=value, attempt=record.attempt, token=record.token)


async def part(engine: Engine, joined: JoinedStore, since: float) -> None:
    """End of the joined block: renew what the open transaction kept the keeper from, and warn if it took long."""
    took = engine.world.monotonic() - since
    due = engine.keeper.due()
    if due:
        await joined.renew(
            [Renewal(hold.id, hold.token, hold.nonce, hold.lease) for hold in due],
            timeout=min(hold.lease for hold in due) / SECOND / 6,
        )
    shortest = engine.keeper.shortest_lease()
    if shortest is not None and took > shortest / 3:
        engine.warn_slow_transaction(took, shortest)
