"""Operation names that Onceward uses for its own records. Applications cannot declare operations with these names."""

from __future__ import annotations

from typing import Final

LOCK: Final = "lock"
"""The operation of every lock."""

SCHEDULE_PREFIX: Final = "schedule:"
"""The operation of a schedule's slots is this prefix and the schedule's name."""

ALERT: Final = "alert:rule"
"""The operation of alerts: each broken rule is reported once, however many machines check the rules."""
