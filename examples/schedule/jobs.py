"""The jobs of a small outreach system: `onceward schedule examples.schedule.jobs:once`, on any number of machines."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import datetime

from onceward import Once, current_claim

FILE = os.environ.get("SCHEDULE_FILE", "schedule.db")

once = Once(f"sqlite:///{FILE}", app="outreach")


def book(job: str, scheduled_at: datetime) -> None:
    """The effect: one row, in the file where the records are, so that row and record are one transaction."""
    with closing(sqlite3.connect(FILE, timeout=10)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS runs (job TEXT, scheduled_at TEXT, runner INTEGER)")
        shop.execute("INSERT INTO runs VALUES (?, ?, ?)", (job, scheduled_at.isoformat(), os.getpid()))
        current_claim().complete_in(shop)


@once.schedule("*/5 8-18 * * 1-6", tz="Europe/Berlin", name="follow-ups", catch_up="last")
def follow_ups(scheduled_at: datetime) -> None:
    """In office hours. After an outage one run does for all that were missed."""
    book("follow-ups", scheduled_at)


@once.schedule("30 2 * * *", tz="Europe/Berlin", name="nightly report", catch_up="all", catch_up_age="3d")
def nightly_report(scheduled_at: datetime) -> None:
    """Each night has its report, also the one in which clocks skip half past two, and that in which it comes twice."""
    book("nightly report", scheduled_at)


@once.schedule("* * * * * *", name="heartbeat", lease="2s", overlap="allow")
def heartbeat(scheduled_at: datetime) -> None:
    """Every second, so that there is something to see."""
    book("heartbeat", scheduled_at)
