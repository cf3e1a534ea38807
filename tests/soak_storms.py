"""Storms of the soak: those of the five systems, each on every store that it is made for."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from onceward.testing.storm import Plan, Trouble, storm
from tests.servers.firestore import shared as shared_firestore
from tests.servers.postgres import Postgres, find_binaries
from tests.servers.redis import RedisServer
from tests.soak_section import Section

SCORED = ("delivered", "acknowledged", "executed", "replayed", "stale", "killed", "redelivered", "paused", "taken_over")
STORES: Final = {
    "documents": ("sqlite", "postgresql", "firestore"),
    "submissions": ("sqlite", "postgresql", "redis"),
    "fleet": ("sqlite", "postgresql", "firestore"),
    "outreach": ("sqlite", "postgresql"),
    "learning": ("sqlite", "postgresql"),
}
PATIENCE: Final = 300.0
"""Seconds: a conflict on Firestore's emulator takes seconds, and a soak may run on a busy machine."""


def storms(system: str, plan: Plan, minutes: float, where: str = "embedded") -> Section:
    """Run the storm of a system with one seed after another, until the time is over."""
    total: Counter[str] = Counter()
    ends = time.monotonic() + minutes * 60
    seed = plan.seed
    passed = True
    while passed and (seed == plan.seed or time.monotonic() < ends):
        try:
            done = storm(system, replace(plan, seed=seed))
        except Trouble as trouble:
            print(f"seed {seed}: {trouble}", file=sys.stderr)
            passed = False
            break
        passed = done.audit.passed
        print(f"  {system}, seed {seed}: {done.audit}", flush=True)
        total.update({name: getattr(done.score, name) for name in SCORED}, **done.audit.counted)
        total.update(events=done.events, expected=done.audit.expected, effects=done.audit.effects)
        total.update({name: len(getattr(done.audit, name)) for name in ("duplicates", "lost", "wrong")})
        seed += 1
    name = system.partition(":")[0]
    seeds = f"{plan.seed}" + (f" … {seed - 1}" if seed > plan.seed + 1 else "")
    size = f"{plan.deliveries} deliveries" if plan.deliveries else f"{plan.seconds:g} s"
    return Section(
        f"Storm of {name}, {where}",
        f"onceward.testing.storm {system}: {size}, {plan.workers} workers, seeds {seeds}",
        passed,
        [("runs", seed - plan.seed), *((name.replace("_", " "), number) for name, number in total.items())],
    )


def stormed(system: str, plan: Plan, minutes: float, kind: str) -> Section:
    """Run the storm of a system on a store of this kind, whose server runs only for this storm."""
    plan = replace(plan, patience=PATIENCE)
    if kind == "firestore":  # the emulator takes some seconds for each conflict
        plan = replace(plan, workers=2, kills=3, pauses=1)
    with opened_store(kind) as url:
        return storms(system, replace(plan, store=url), minutes, f"on {kind}")


@contextmanager
def opened_store(kind: str) -> Iterator[str]:
    """Yield the URL of an empty store. An empty URL stands for the SQLite file of the system itself."""
    if kind == "postgresql":
        postgres = Postgres(find_binaries())
        try:
            postgres.start()
            yield postgres.url
        finally:
            postgres.remove()
    elif kind == "redis":
        server = RedisServer(settings=("--save", "", "--appendonly", "yes", "--appendfsync", "always")).begin()
        try:
            yield f"redis://127.0.0.1:{server.port}/0"
        finally:
            server.end()
    elif kind == "firestore":
        shared_firestore()
        yield f"firestore://onceward-test/soak_{time.time_ns()}"
    else:
        yield ""
