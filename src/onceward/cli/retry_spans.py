"""Compare declared retry spans (how long senders redeliver) with the windows of records in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onceward.errors import ConfigurationError
from onceward.operations.operation import VERSION_MARK
from onceward.protocol.duration import microseconds
from onceward.protocol.ports import Filter, SortOrder, Store
from onceward.protocol.record import Record, RecordState

from .display import span
from .find import first_records

SAMPLE_SIZE = 100
"""How many of the newest records of a scope to check: older ones may have been written with other settings."""

MAX_SCOPES = 20  # the largest tenants of one operation


class SpanFinding(NamedTuple):
    """The result for one declared operation. `short`: some windows are shorter than its retry span."""

    declared: str
    short: bool
    known: bool
    detail: str


def parse_flags(flags: Sequence[str]) -> dict[str, str]:
    """Parse flags such as `--retry-span shop/charge=3d`."""
    pairs = (flag.rpartition("=") for flag in flags)
    spans = {name: duration for name, _, duration in pairs}
    if "" in spans:
        raise ConfigurationError(
            "--retry-span needs a scope and a duration", hint="such as --retry-span shop/charge=3d"
        )
    return spans


def findings(
    store: Store, counted: Mapping[tuple[str, RecordState], int], spans: Mapping[str, str]
) -> list[SpanFinding]:
    """Return one finding for each declared span."""
    scopes = {scope: number for (scope, state), number in counted.items() if state is RecordState.COMPLETED}
    found = []
    for name, duration in spans.items():
        retry_span = microseconds(duration, f"the retry span of {name}")
        matching = sorted((one for one in scopes if declared_for(one, spans) == name), key=lambda one: -scopes[one])
        records = [record for scope in matching[:MAX_SCOPES] for record in newest_records(store, scope)]
        found.append(_span_finding(name, retry_span, records))
    return found


def declared_for(scope: str, spans: Mapping[str, str]) -> str | None:
    """Return the declaration for a scope: that of its tenant, of its operation in the app, or of the operation."""
    of_app = scope.partition("@")[0]
    operation = of_app.partition("/")[2]
    return next((name for name in (scope, of_app, operation, unversioned(operation)) if name in spans), None)


def unversioned(operation: str) -> str:
    """Return the name of an operation without its version."""
    return operation.partition(VERSION_MARK)[0]


def newest_records(store: Store, scope: str) -> list[Record]:
    wanted = Filter(states=(RecordState.COMPLETED,), scope=scope)
    return [record for record, _ in first_records(store, wanted, SortOrder.UPDATED, SAMPLE_SIZE)]


def remembered_for(record: Record) -> int | None:
    """Return how long after the first delivery a repeated one is recognised; None means forever."""
    if record.valid_until is None:
        return None
    return record.slide or record.valid_until - record.claimed_at


def _span_finding(name: str, retry_span: int, records: Sequence[Record]) -> SpanFinding:
    if not records:
        return SpanFinding(
            name, short=False, known=False, detail="no completed records to check; is the scope correct?"
        )
    windows = [window for window in map(remembered_for, records) if window is not None and window < retry_span]
    if not windows:
        detail = (
            f"the newest {len(records)} records are kept for {span(retry_span)} or longer, the span of redeliveries"
        )
        return SpanFinding(name, short=False, known=True, detail=detail)
    detail = f"{len(windows)} of the newest {len(records)} records are kept only for {span(min(windows))}"
    detail += f", but the sender redelivers for {span(retry_span)}: a late delivery runs again; increase the window"
    return SpanFinding(name, short=True, known=True, detail=detail)
