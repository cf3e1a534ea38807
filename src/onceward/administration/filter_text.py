"""Build a filter from the texts in a URL, a form or a tool call."""

from __future__ import annotations

from datetime import UTC, datetime

from onceward.errors import ConfigurationError
from onceward.keys.readable import escape
from onceward.protocol.duration import microseconds
from onceward.protocol.listing import WORK_STATES, ListingFilter
from onceward.protocol.record import RecordState


def filter_from_text(
    *,
    state: str = "",
    scope: str = "",
    tenant: str = "",
    prefix: str = "",
    id: str = "",
    note: str = "",
    error_type: str = "",
    since: str = "",
    before: str = "",
) -> ListingFilter:
    """Return the filter for these texts. Empty ones do not filter. `since` and `before` limit the time of the claim."""
    return ListingFilter(
        states=_states(state.upper()),
        scopes=(scope,) if scope else (),
        tenants=(tenant,) if tenant else (),
        prefix=escape(prefix),  # as keys are stored and shown
        id=id,
        note=note,
        error_type=error_type,
        claimed_since=instant(since),
        claimed_before=instant(before),
    )


def _states(state: str) -> tuple[RecordState, ...]:
    try:
        return (RecordState(state),) if state else WORK_STATES
    except ValueError:
        raise ConfigurationError(f"{state!r} is not a state", hint=f"states are: {', '.join(RecordState)}") from None


def instant(text: str) -> int | None:
    """Return a time in µs: `2026-11-17T18:00`, in UTC if it names no zone, or a duration ago, such as `2h`."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return int(datetime.now(UTC).timestamp() * 1_000_000) - microseconds(text, "since and before")
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000_000)
