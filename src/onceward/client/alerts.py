"""Alerts: an alert is an operation like any other, so nobody is told twice, however many machines look at the rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onceward.engine.execute import execute
from onceward.engine.job import Job
from onceward.observe.rules import Broken, Thresholds
from onceward.operations.operation import Operation
from onceward.protocol.operation_names import ALERT
from onceward.protocol.policy import Policy

if TYPE_CHECKING:
    from .base import BaseClient

Alert = Callable[[Broken], object]
AsyncAlert = Callable[[Broken], Awaitable[object]]


def alert_jobs(
    client: BaseClient, found: Sequence[Broken], send: Alert | AsyncAlert, thresholds: Thresholds
) -> list[Job]:
    """A job for each broken rule, under a key of the rule and the scope; the figure may be another each time."""

    def alert(broken: Broken) -> Any:
        return send(broken)

    async def alert_async(broken: Broken) -> Any:
        return await send(broken)  # type: ignore[misc]  # the async face takes only this kind

    settings = {
        "window": timedelta(microseconds=thresholds.alert_window),
        "fingerprint": "none",
        "on_running": "raise",
        "store_result": False,
    }
    awaits = client._awaits  # noqa: SLF001 (its own faces call this)
    plain = client.using()
    plain.policy = Policy()  # a client's defaults are about its own work
    operation: Operation = plain.compiled(
        alert_async if awaits else alert, settings, key=_key, name=ALERT, awaits=awaits
    )
    return [operation.job((broken,), {}) for broken in found]


def _key(broken: Broken) -> str:
    return f"{broken.rule}:{broken.scope}" if broken.scope else broken.rule


async def send_all(client: BaseClient, jobs: Sequence[Job]) -> None:
    """One after the other. An alert that fails is told as an event like any other work, and tried at the next check."""
    for job in jobs:
        await execute(client.engine, job)
