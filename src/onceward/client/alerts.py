"""Alerts about broken rules. An alert is an operation like any other: it is sent once even if many machines check."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward.engine.runner import execute
from onceward.errors import OncewardError
from onceward.observe.record_figures import SEARCH, scan_pages
from onceward.observe.rules import Broken, Figures, check
from onceward.observe.thresholds import Thresholds
from onceward.operations.operation import Operation
from onceward.protocol.operation_names import ALERT
from onceward.protocol.policy import Policy
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.protocol.requests import ExpectedRecord

if TYPE_CHECKING:
    from .base import BaseClient

Alert = Callable[[Broken], object]
AsyncAlert = Callable[[Broken], Awaitable[object]]


async def send_alerts(
    client: BaseClient,
    measured: Figures,
    send: Alert | AsyncAlert,
    thresholds: Thresholds,
    channel: str = "",
) -> None:
    """Send an alert about each rule that the `measured` figures break, one after the other.

    The key is rule and scope; the measured value may differ each time. If sending fails, the alert emits an event like
    other work, and the next check retries it. Alerts of another `channel` are sent separately.
    """
    operation = _alert_operation(client, send, thresholds, channel)
    await client.engine.ready()
    failure = None
    try:
        await _forget_solved(client.engine.store, operation, measured, channel)
    except OncewardError as error:  # alerts are sent even if the store cannot be searched
        failure = error
    for broken in check(measured, thresholds):
        await execute(client.engine, operation.job((broken,), {}))
    if failure is not None:
        raise failure


def _alert_operation(client: BaseClient, send: Alert | AsyncAlert, thresholds: Thresholds, channel: str) -> Operation:
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
    return sender.compile_operation(
        alert_async if is_async else alert, settings, key=partial(_key, channel), name=ALERT, is_async=is_async
    )


def _key(channel: str, broken: Broken) -> str:
    rule = _rule_text(channel, broken.rule)
    return f"{rule}:{broken.scope}" if broken.scope else rule


def _rule_text(channel: str, rule: str) -> str:
    return f"{channel} {rule}" if channel else rule


async def _forget_solved(store: Store, operation: Operation, measured: Figures, channel: str) -> None:
    """Forget the alerts about records that are settled by now, so that the next such record sends a new alert.

    An alert about failures is forgotten if no failure is left. An alert about parked records is forgotten if no record
    is left whose problem began before the alert was sent. The limits do not matter: otherwise, checks with different
    limits would send alerts in turn. Alerts that were sent after the figures were read are kept.
    """
    left = {"parked": measured.records.parked_since, "failed_final": dict.fromkeys(measured.records.failed_final, 0)}
    rules = {_rule_text(channel, rule) for rule in left}
    since = {
        operation.key((Broken(rule, scope, 0, 0, "", ""),), {}).id: began
        for rule, found in left.items()
        for scope, began in found.items()
    }
    sent = Filter(states=(RecordState.COMPLETED,), scope=operation.scope.text, updated_before=measured.tally.now)
    solved = {}
    async for page in scan_pages(store, sent, SEARCH):
        for record in page.records:
            is_left = since.get(record.id, math.inf) <= record.claimed_at
            if record.key.partition(":")[0] in rules and not is_left:
                solved[record.id] = ExpectedRecord(record.token, record.state)
    if solved:
        await store.forget(list(solved), force=False, timeout=SEARCH, seen=solved)
