"""The thresholds of the alert rules, as a settings file or a caller writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.keys.readable import escape
from onceward.protocol.counters import HOUR
from onceward.protocol.duration import microseconds
from onceward.protocol.suggest import did_you_mean

DAY: Final = 24
"""Hours."""


class Thresholds(Struct, frozen=True, kw_only=True):
    """The thresholds of the rules. Each is the last value that is still acceptable."""

    claim_errors: int = 10
    """Per hour, in all scopes."""

    renewal_failures: int = 5
    """Per hour, in all scopes."""

    old_pending: int = 3
    """PENDING records that were claimed longer ago than `old_pending_age`, in all scopes."""

    old_pending_age: int = HOUR // 2
    """In µs; written as a duration, "30m"."""

    replay_rate: float = 0.05
    """Share of the calls of a day, by operation."""

    replay_rate_calls: int = 20
    """... if there were at least this many calls: with fewer, a single replay would be more than 5 %."""

    no_replay_days: int = 14
    """Days without a single replay, by operation ..."""

    no_replay_executions: int = 1_000
    """... although there were at least this many executions."""

    stale: int = 20
    """Stale events per hour, by operation ..."""

    stale_factor: float = 5
    """... if that is also more than this factor times the hourly mean of the previous day."""

    unprotected: int = 0
    """Per day, in all scopes."""

    parked: int = 0
    """PARKED records, by operation: each needs an operator."""

    failed_final: int = 0
    """Records that failed in the last day and are not retried, by operation."""

    unknown: int = 0
    """Outcomes that the store did not confirm, per day, by operation."""

    dead_letters: int = 0
    """Messages per day that went to a dead letter queue, by queue."""

    stuck_schedules: int = 0
    """Schedules whose next slot is overdue by more than `stuck_schedule_age` ..."""

    stuck_schedule_age: int = HOUR
    """... in µs; written as a duration, "1h"."""

    replays_expected: tuple[str, ...] = ()
    """Operations, "email" or "shop/email", that are expected to be replayed: both replay rules skip them."""

    alert_window: int = DAY * HOUR
    """In µs; written as a duration, "24h". An alert is not repeated within this time."""


NOT_ZERO: Final = {"no_replay_days": "14", "alert_window": "24h"}
"""Durations that must not be 0, and their defaults."""

DURATIONS: Final = ("old_pending_age", "stuck_schedule_age", "alert_window")


def parse_thresholds(table: Mapping[str, Any], source: str = "rules") -> Thresholds:
    """Parse thresholds from a file or a caller. Omitted ones keep their defaults."""
    given: dict[str, Any] = {}
    for written, value in table.items():
        name = written.replace("-", "_")
        if name not in Thresholds.__struct_fields__:
            raise ConfigurationError(
                f"{source}: there is no threshold {written!r}",
                hint=did_you_mean(name, Thresholds.__struct_fields__, "thresholds are"),
            )
        given[name] = microseconds(value, f"{source}: {written}") if name in DURATIONS else value
    try:
        found = msgspec.convert(given, Thresholds)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{source}: {error}", hint="thresholds are numbers, durations and a list") from error
    _validate(found, source)
    return replace(found, replays_expected=tuple(map(escape, found.replays_expected)))  # as scopes are shown


def _validate(found: Thresholds, source: str) -> None:
    for name in Thresholds.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, tuple):
            continue
        if not math.isfinite(value):
            raise ConfigurationError(f"{source}: {name} must be a finite number")
        if value < 0:
            raise ConfigurationError(f"{source}: {name} is negative", hint="0 is the strictest")
        if not value and name in NOT_ZERO:
            raise ConfigurationError(f"{source}: {name} is 0", hint=f"omit it to use the default, {NOT_ZERO[name]}")
    if found.replay_rate > 1:
        raise ConfigurationError(
            f"{source}: a replay_rate of {found.replay_rate:g} is never reached", hint="0.05 is 5 %"
        )
    if found.no_replay_days > MAX_NO_REPLAY_DAYS:
        raise ConfigurationError(
            f"{source}: counters are kept for 30 days, so no_replay_days={found.no_replay_days} cannot be checked",
            hint=f"use at most {MAX_NO_REPLAY_DAYS}",
        )


MAX_NO_REPLAY_DAYS: Final = 28
"""Less than the retention of counters, 30 days."""
