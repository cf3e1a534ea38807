"""From a record back to its delivery: which of a client's functions and sagas it is of, and with which input."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from onceward.engine.engine import Engine
from onceward.engine.execute import execute
from onceward.engine.job import Job
from onceward.errors import ConfigurationError
from onceward.operations.operation import Operation
from onceward.protocol.outcome import Outcome
from onceward.protocol.record import Record
from onceward.sagas.api import DeclaredSaga
from onceward.sagas.flow import run_saga

from .sweeper import Sweeper, Tell


def sweeper(client: Any, tell: Tell | None) -> Sweeper:
    """A recovery worker for what this client has declared with `store_input=True`."""
    is_async = bool(client._is_async)  # noqa: SLF001 (its own faces call this)
    known = [one for one in client.recoverable if one.is_async is is_async]
    if not known:
        other = " of this colour" if client.recoverable else ""
        raise ConfigurationError(
            f"this client has declared nothing{other} that keeps its input",
            hint="@once(store_input=True), or once.saga(…); async ones are recovered by AsyncOnce, or once.aio",
        )
    deliveries = Deliveries(client.engine, known)
    return Sweeper(client.engine, client._app, deliveries.of, tell)  # noqa: SLF001 (as above)


class Deliveries:
    """What can be delivered again, by the scope of its records. Several may share one: versions of one name do not."""

    def __init__(self, engine: Engine, known: list[Operation | DeclaredSaga]) -> None:
        self._engine = engine
        self._known: dict[str, list[Operation | DeclaredSaga]] = {}
        for one in known:
            self._known.setdefault(without_tenant(one.scope.text), []).append(one)

    def of(self, record: Record) -> Coroutine[Any, Any, Outcome[Any]] | None:
        """The same call once more. It does not wait for somebody else who is at it."""
        for one in self._known.get(without_tenant(record.scope), ()):
            operation = one.operation if isinstance(one, DeclaredSaga) else one
            call = None if operation.input is None else operation.input.call(record.id, record.note)
            if call is None:
                continue
            if isinstance(one, DeclaredSaga):
                saga = one.saga_job(*call)
                if saga.job.key.id == record.id:
                    return run_saga(self._engine, replace(saga, job=impatient(saga.job)))
            else:
                job = one.job(*call)
                if job.key.id == record.id:
                    return execute(self._engine, impatient(job))
        return None


def impatient(job: Job) -> Job:
    return replace(job, policy=replace(job.policy, on_running="raise"))


def without_tenant(scope: str) -> str:
    """`app/operation` of a scope's text: a separator inside of a part is quoted."""
    return scope.partition("@")[0]
