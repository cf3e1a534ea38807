"""The jobs of a small outreach system: `onceward schedule examples.schedule.jobs:once`, on any number of machines."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import datetime

from onceward import Once, current_claim

FILE = os.environ.get("SCHEDULE_FILE", "schedule.db")

once = Once(f"sqlite:///{FILE}", app="outreach")


def record_run(job: str, scheduled_at: datetime) -> None:
    """Insert one row. It is in the same file as the records, so row and record commit in one transaction."""
    with closing(sqlite3.connect(FILE, timeout=10)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS runs (job TEXT, scheduled_at TEXT, runner INTEGER)")
        shop.execute("INSERT INTO runs VALUES (?, ?, ?)", (job, scheduled_at.isoformat(), os.getpid()))
        current_claim().complete_in(shop)


@once.schedule("*/5 8-18 * * 1-6", tz="Europe/Berlin", name="follow-ups", catch_up="last")
def follow_ups(scheduled_at: datetime) -> None:
    """Run in office hours. After an outage, one run replaces all missed ones."""
    record_run("follow-ups", scheduled_at)


@once.schedule("30 2 * * *", tz="Europe/Berlin", name="nightly report", catch_up="all", catch_up_age="3d")
def nightly_report(scheduled_at: datetime) -> None:
    """Run once each night, also when daylight saving time skips half past two or repeats it."""
    record_run("nightly report", scheduled_at)


@once.schedule("* * * * * *", name="heartbeat", lease="2s", overlap="allow")
def heartbeat(scheduled_at: datetime) -> None:
    """Run every second, to show something."""
    record_run("heartbeat", scheduled_at)
