"""Alerts about broken rules. An alert is an operation like any other: it is sent once even if many machines check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward.engine.job import Job
from onceward.engine.runner import execute
from onceward.observe.rules import Broken
from onceward.observe.thresholds import Thresholds
from onceward.operations.operation import Operation
from onceward.protocol.operation_names import ALERT
from onceward.protocol.policy import Policy

if TYPE_CHECKING:
    from .base import BaseClient

Alert = Callable[[Broken], object]
AsyncAlert = Callable[[Broken], Awaitable[object]]


def alert_jobs(
    client: BaseClient, found: Sequence[Broken], send: Alert | AsyncAlert, thresholds: Thresholds, channel: str = ""
) -> list[Job]:
    """Return a job for each broken rule. The key is rule and scope; the measured value may differ each time.

    Alerts of another `channel` are sent separately.
    """

    def alert(broken: Broken) -> Any:
        return send(broken)

    async def alert_async(broken: Broken) -> Any:
        return await send(broken)  # type: ignore[misc]  # AsyncOnce accepts only async alerts

    settings = {
        "window": timedelta(microseconds=thresholds.alert_window),
        "fingerprint": "none",
        "on_running": "raise",
        "store_result": False,
    }
    is_async = client._is_async  # noqa: SLF001 (same package)
    sender = client.using()
    sender.policy = Policy()  # the client's defaults are meant for its own work
    operation: Operation = sender.compile_operation(
        alert_async if is_async else alert, settings, key=partial(_key, channel), name=ALERT, is_async=is_async
    )
    return [operation.job((broken,), {}) for broken in found]


def _key(channel: str, broken: Broken) -> str:
    key = f"{broken.rule}:{broken.scope}" if broken.scope else broken.rule
    return f"{key} to {channel}" if channel else key


async def send_all(client: BaseClient, jobs: Sequence[Job]) -> None:
    """Send the alerts one after the other. One that fails emits an event like other work; the next check retries it."""
    for job in jobs:
        await execute(client.engine, job)
