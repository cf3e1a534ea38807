"""Retry spans: for how long senders redeliver, as declared, against the windows that are seen in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onceward.errors import ConfigurationError
from onceward.operations.operation import VERSION_MARK
from onceward.protocol.duration import microseconds
from onceward.protocol.ports import Filter, SortOrder, Store
from onceward.protocol.record import Record, RecordState

from .display import span
from .find import first

SAMPLE = 100
"""Newest records of a scope that are looked at: what is declared now shows in them, and old ones may be otherwise."""

MOST_SCOPES = 20  # tenants, the largest ones, of one operation


class SpanFinding(NamedTuple):
    """What the windows of one declared operation look like. `short`: some are shorter than its retry span."""

    declared: str
    short: bool
    known: bool
    detail: str


def parsed(flags: Sequence[str]) -> dict[str, str]:
    """`--retry-span shop/charge=3d`, one or more."""
    pairs = (flag.rpartition("=") for flag in flags)
    spans = {name: duration for name, _, duration in pairs}
    if "" in spans:
        raise ConfigurationError("--retry-span needs a scope and a duration", hint="write --retry-span shop/charge=3d")
    return spans


def findings(
    store: Store, counted: Mapping[tuple[str, RecordState], int], spans: Mapping[str, str]
) -> list[SpanFinding]:
    """One for each declared span."""
    scopes = {scope: number for (scope, state), number in counted.items() if state is RecordState.COMPLETED}
    found = []
    for name, duration in spans.items():
        retried = microseconds(duration, f"the retry span of {name}")
        mine = sorted((one for one in scopes if declared_for(one, spans) == name), key=lambda one: -scopes[one])
        records = [record for scope in mine[:MOST_SCOPES] for record in newest(store, scope)]
        found.append(_judged(name, retried, records))
    return found


def declared_for(scope: str, spans: Mapping[str, str]) -> str | None:
    """Which declaration holds for a scope: that of its tenant, of its operation in the app, of the operation."""
    of_app = scope.partition("@")[0]
    operation = of_app.partition("/")[2]
    return next((name for name in (scope, of_app, operation, unversioned(operation)) if name in spans), None)


def unversioned(operation: str) -> str:
    """The name that an operation was declared by: that of all its versions."""
    return operation.partition(VERSION_MARK)[0]


def newest(store: Store, scope: str) -> list[Record]:
    wanted = Filter(states=(RecordState.COMPLETED,), scope=scope)
    return [record for record, _ in first(store, wanted, SortOrder.UPDATED, SAMPLE)]


def protected(record: Record) -> int | None:
    """How long after its delivery a repeated one is answered; None is for ever."""
    if record.valid_until is None:
        return None
    return record.slide or record.valid_until - record.claimed_at


def _judged(name: str, retried: int, records: Sequence[Record]) -> SpanFinding:
    if not records:
        return SpanFinding(
            name, short=False, known=False, detail="no completed records to judge by; is the scope right?"
        )
    windows = [window for window in map(protected, records) if window is not None and window < retried]
    if not windows:
        detail = f"the newest {len(records)} records answer for {span(retried)} or longer, as its sender redelivers"
        return SpanFinding(name, short=False, known=True, detail=detail)
    detail = f"{len(windows)} of the newest {len(records)} records answer only for {span(min(windows))}"
    detail += f", but its sender redelivers for {span(retried)}: a late one runs again; make its window longer"
    return SpanFinding(name, short=True, known=True, detail=detail)
