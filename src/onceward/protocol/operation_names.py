"""Operation names that Onceward uses for its own records. Applications cannot declare operations with these names."""

from __future__ import annotations

from typing import Final

LOCK: Final = "lock"
"""The operation of every lock."""

SCHEDULE_PREFIX: Final = "schedule:"
"""The operation of a schedule's slots is this prefix and the schedule's name."""

ALERT: Final = "alert:rule"
"""The operation of alerts: each broken rule is reported once, however many machines check the rules."""

DECLARATION: Final = "onceward:declaration"
"""The operation of the latest states that hold how each operation was declared last."""

SKIPPED: Final = "Skipped"
"""The error type of a slot that was skipped because an earlier run of its schedule had not ended."""

NEXT_SLOT: Final = "next"
"""The note on a schedule's cursor that holds its next slot, in µs since 1970."""
