"""The filter parameters of tools."""

from __future__ import annotations

from datetime import UTC, datetime

from onceward.errors import ConfigurationError
from onceward.protocol.listing import WORK_STATES, ListingFilter
from onceward.protocol.record import RecordState
from onceward.schedules.slots import instant_of

MAX_ROWS = 100


def listing_filter(
    *,
    state: str = "",
    scope: str = "",
    tenant: str = "",
    prefix: str = "",
    note: str = "",
    error_type: str = "",
    claimed_since: str = "",
    claimed_before: str = "",
) -> ListingFilter:
    """Return the filter for these parameters; an empty one does not filter."""
    return ListingFilter(
        states=_states(state),
        scopes=(scope,) if scope else (),
        tenants=(tenant,) if tenant else (),
        prefix=prefix,
        note=note,
        error_type=error_type,
        claimed_since=_instant(claimed_since),
        claimed_before=_instant(claimed_before),
    )


def rows(limit: int) -> int:
    """Return the number of rows to read."""
    return max(1, min(limit, MAX_ROWS))


def _states(state: str) -> tuple[RecordState, ...]:
    if not state:
        return WORK_STATES
    try:
        return (RecordState(state.upper()),)
    except ValueError:
        raise ConfigurationError(f"{state!r} is not one of {', '.join(RecordState)}") from None


def _instant(text: str) -> int | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a time", hint="write it as 2026-03-01T08:05:00Z") from None
    return instant_of(at if at.tzinfo is not None else at.replace(tzinfo=UTC))
