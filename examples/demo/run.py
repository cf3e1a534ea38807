"""One run from the traffic to the audit, for the demo and for whoever wants many of them."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from examples.demo.audit import Audit, audit, create_table
from examples.demo.backlog import Backlog
from examples.demo.crew import Crew, plan_kills
from examples.demo.traffic import make_traffic


class Plan(NamedTuple):
    """What is to be run. The same seed makes the same traffic and the same kills."""

    deliveries: int
    workers: int
    kills: int
    seed: int = 1
    unguarded: bool = False


class Run(NamedTuple):
    """What the audit found, what the workers said, and how many seconds it took."""

    audit: Audit
    counts: Counter[str]
    took: float


def nobody(_counts: Counter[str]) -> None:
    """Looks at no scoreboard."""


def run(plan: Plan, show: Callable[[Counter[str]], None] = nobody) -> Run:
    """Raises `Trouble` if it cannot be finished."""
    traffic = make_traffic(plan.deliveries, plan.seed)
    kills = plan_kills(plan.kills, plan.deliveries, plan.workers, plan.seed)
    with tempfile.TemporaryDirectory(prefix="onceward-demo-") as name:
        folder = Path(name)
        create_table(folder / "demo.db")
        crew = Crew(
            Backlog(traffic.deliveries),
            kills,
            workers=plan.workers,
            kind="unguarded" if plan.unguarded else "guarded",
            folder=folder,
            seed=plan.seed,
        )
        started = time.monotonic()
        crew.run(show)
        return Run(audit(folder / "demo.db", traffic.orders), crew.counts, time.monotonic() - started)
