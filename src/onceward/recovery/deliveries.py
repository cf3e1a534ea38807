"""Deliver a record again: find the client's function or saga that it belongs to, and its stored input."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.runner import execute
from onceward.errors import ConfigurationError
from onceward.operations.operation import Operation
from onceward.protocol.outcome import Outcome
from onceward.protocol.record import Record
from onceward.sagas.api import DeclaredSaga
from onceward.sagas.flow import run_saga

from .sweeper import OnRecovered, Sweeper


def sweeper(client: Any, on_result: OnRecovered | None) -> Sweeper:
    """Return a recovery worker for what this client has declared with `store_input=True`."""
    is_async = bool(client._is_async)  # noqa: SLF001 (the client's own classes call this)
    known = [one for one in client.recoverable if one.is_async is is_async]
    if not known:
        kind = f"{'async' if is_async else 'sync'} " if client.recoverable else ""
        raise ConfigurationError(
            f"this client has declared no {kind}work that stores its input",
            hint="@once(store_input=True), or once.saga(…); AsyncOnce, or once.aio, recovers async functions",
        )
    deliveries = Deliveries(client.engine, known)
    return Sweeper(client.engine, client._app, deliveries.delivery_for, on_result)  # noqa: SLF001 (as above)


class Deliveries:
    """What can be delivered again, by the scope of its records. Several declarations may share a scope."""

    def __init__(self, engine: Engine, known: list[Operation | DeclaredSaga]) -> None:
        self._engine = engine
        self._known: dict[str, list[Operation | DeclaredSaga]] = {}
        for one in known:
            self._known.setdefault(without_tenant(one.scope.text), []).append(one)

    def delivery_for(self, record: Record) -> Coroutine[Any, Any, Outcome[Any]] | None:
        """Return the same call once more. It does not wait if another worker is already processing the key."""
        for one in self._known.get(without_tenant(record.scope), ()):
            operation = one.operation if isinstance(one, DeclaredSaga) else one
            call = None if operation.input is None else operation.input.call(record.id, record.note)
            if call is None:
                continue
            if isinstance(one, DeclaredSaga):
                saga = one.saga_job(*call)
                if saga.job.key.id == record.id:
                    return run_saga(self._engine, replace(saga, job=without_waiting(saga.job)))
            else:
                job = one.job(*call)
                if job.key.id == record.id:
                    return execute(self._engine, without_waiting(job))
        return None


def without_waiting(job: Job) -> Job:
    return replace(job, policy=replace(job.policy, on_running="raise"))


def without_tenant(scope: str) -> str:
    """Return `app/operation` of a scope's text. A separator inside a part is quoted, so `@` begins the tenant."""
    return scope.partition("@")[0]
