"""Windows: how long a completed record is replayed.

forever                        until it is forgotten
lasting("24h")                 24 hours from completion
lasting("24h", since="attempt")  24 hours from the claim of the attempt that completed (or finally failed)
sliding("1h")                  one hour from the last replay
calendar("Europe/Berlin")      until the first instant of the next local date after the claim
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

from msgspec import Struct

from onceward.errors import ConfigurationError

from .duration import Duration, exact_duration, microseconds
from .note import WINDOW
from .record import AfterCrash, Record
from .requests import FOREVER, Validity

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
SINCE_ATTEMPT = " since the attempt"


class Window(Struct, frozen=True, dict=True):
    """How long a completed key is remembered. Create it with `lasting`, `sliding`, `calendar`, or use `forever`.

    `kind` is which of the four. `length` is in µs, counted from the completion or from the claim of the attempt
    (`since`). `zone` is the time zone whose midnight ends a `calendar` window.
    """

    kind: Literal["forever", "lasting", "sliding", "calendar"]
    length: int = 0
    since: Literal["completion", "attempt"] = "completion"
    zone: str = ""

    def validity(self, claimed_at: int) -> Validity:
        """Return the validity of a settled record. `claimed_at` is the store's time of the claim."""
        if self.constant_validity is not None:
            return self.constant_validity
        if self.kind == "calendar":
            return Validity(until=next_local_date(claimed_at, self.zone))
        return Validity(until=claimed_at + self.length)

    @cached_property
    def constant_validity(self) -> Validity | None:
        """The validity if it is the same for every claim; None if it depends on the time of the claim."""
        match self.kind, self.since:
            case "forever", _:
                return FOREVER
            case "sliding", _:
                return Validity(lasting=self.length, slide=self.length)
            case "lasting", "completion":
                return Validity(lasting=self.length)
            case _:
                return None

    def __str__(self) -> str:
        """Return an exact text: claims and declarations store it, and `window_from_text` reads it."""
        match self.kind:
            case "forever":
                return "forever"
            case "calendar":
                return f"calendar day in {self.zone}"
            case _:
                return f"{self.kind} {exact_duration(self.length)}" + (SINCE_ATTEMPT if self.since == "attempt" else "")


forever = Window("forever")


def lasting(length: Duration, *, since: Literal["completion", "attempt"] = "completion") -> Window:
    """Return a window of this `length`, counted `since` the completion, or since the last attempt was claimed.

    Raise `ConfigurationError` if the length is not positive.
    """
    if since not in ("completion", "attempt"):
        raise ConfigurationError(f"since must be 'completion' or 'attempt', not {since!r}")
    return Window("lasting", _positive(length), since)


def sliding(length: Duration) -> Window:
    """Return a window that ends `length` after the last request for the key.

    Raise `ConfigurationError` if the length is not positive.
    """
    return Window("sliding", _positive(length))


def calendar(zone: str) -> Window:
    """Return a window that ends with the day of the claim in this time `zone`, such as "Europe/Berlin".

    Raise `ConfigurationError` if the zone is unknown.
    """
    from zoneinfo import ZoneInfo  # imported here, because most windows are not calendar days

    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise ConfigurationError(
            f"unknown time zone {zone!r}",
            hint="write an IANA name such as Europe/Berlin or UTC; if the system has no time zones, install tzdata",
        ) from error
    return Window("calendar", zone=zone)


def parse_window(value: Window | Duration) -> Window:
    """Parse what users write for a window: a Window, "forever", or a duration from completion."""
    if isinstance(value, Window):
        return value
    if value == "forever":
        return forever
    return lasting(value)


def window_from_text(text: str) -> Window | None:
    """Return the window whose `str()` this is, as declarations store it; None if it is not one."""
    if text == "forever":
        return forever
    kind, _, rest = text.partition(" ")
    try:
        match kind:
            case "lasting" if rest.endswith(SINCE_ATTEMPT):
                return lasting(rest.removesuffix(SINCE_ATTEMPT), since="attempt")
            case "lasting":
                return lasting(rest)
            case "sliding":
                return sliding(rest)
            case "calendar":
                return calendar(rest.removeprefix("day in "))
            case _:
                return None
    except ConfigurationError:  # written by another version
        return None


def recorded_window(record: Record) -> Window | None:
    """Return the window that the last claim wrote to the record's note; None if it wrote none.

    A claim of work that cannot be parked writes none. If there is one, an earlier deployment wrote it.
    """
    if record.after_crash is AfterCrash.RERUN and not record.max_attempts:
        return None
    return window_from_text(record.note.get(WINDOW, ""))


def next_local_date(instant: int, zone: str) -> int:
    """Return the first instant of the next local date. A midnight inside a DST gap is the end of the gap.

    If midnight occurs twice, because clocks are set back across it, the one in the future is returned.
    """
    from zoneinfo import ZoneInfo

    local = (_EPOCH + instant * _MICROSECOND).astimezone(ZoneInfo(zone))
    midnight = datetime(local.year, local.month, local.day, tzinfo=ZoneInfo(zone)) + timedelta(days=1)
    first = (midnight.astimezone(UTC) - _EPOCH) // _MICROSECOND
    return first if first > instant else (midnight.replace(fold=1).astimezone(UTC) - _EPOCH) // _MICROSECOND


def _positive(length: Duration) -> int:
    value = microseconds(length, "window")
    if value == 0:
        raise ConfigurationError(
            "a window of 0 would never replay a result", hint="leave the function undecorated instead"
        )
    return value
