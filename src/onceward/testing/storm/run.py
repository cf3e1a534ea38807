"""One run, from the traffic to the audit."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import OncewardError

from .contract import Audit, Effect, StormSetting, Trouble
from .delivery_queue import DeliveryQueue
from .find_system import find_system
from .plan import Plan
from .score import Score
from .supervisor import Supervisor
from .traffic import Traffic


class Run(Struct, frozen=True):
    """The result of a run: the audit, the results of the workers, and the duration in seconds."""

    system: str
    """What the tested `System` calls itself in the report."""
    effects: list[Effect]
    """The kinds of effects that the audit counted, with their guarantees."""
    plan: Plan
    """The plan that was executed."""
    events: int
    """How many different events were delivered."""
    score: Score
    """What the workers reported."""
    audit: Audit
    """What really happened."""
    took: float
    """Seconds from the start of the services to the end of the audit."""


def ignore_score(_score: Score) -> None:
    """Show no scoreboard."""


def storm(system: str, plan: Plan, show: Callable[[Score], None] = ignore_score) -> Run:
    """Run a storm on a system, then its audit. Return both results.

    Args:
        system: Where the system is: `module:NAME`. Worker processes import it.
        plan: How many deliveries, workers, kills and pauses there are.
        show: Called with the score while the storm runs.

    Raises:
        Trouble: The run cannot be finished, or nothing was delivered.
    """
    if not hasattr(os, "fork"):  # Windows
        raise Trouble("a storm forks and kills processes, which this system cannot do: run it on Linux or macOS")
    found = find_system(system)
    started = time.monotonic()
    with _open_folder(plan.folder) as folder:
        setting = StormSetting(folder=folder, run=secrets.token_hex(4), store=plan.store, guarded=plan.guarded)
        with ExitStack() as opened:
            with _trouble_on_error(f"{found.name} could not be opened"):
                setting = replace(setting, services=dict(opened.enter_context(found.open(setting))))
            traffic = Traffic(found.events(random.Random(f"{plan.seed} events")), plan)
            supervisor = Supervisor(system, plan, setting, DeliveryQueue(traffic))
            supervisor.run(show)
            events = traffic.events
            if not events:
                raise Trouble("nothing was delivered, so the run proves nothing: let it run for longer")
            with _trouble_on_error(f"the audit of {found.name} failed"):
                audit = found.audit(setting, events)
    took = time.monotonic() - started
    return Run(found.name, list(found.effects), plan, len(events), supervisor.score, audit, took)


@contextmanager
def _trouble_on_error(what: str) -> Iterator[None]:
    try:
        yield
    except (Trouble, OncewardError):
        raise
    except Exception as error:
        raise Trouble(f"{what}: {error!r}") from error


@contextmanager
def _open_folder(path: str) -> Iterator[str]:
    if path:
        with _trouble_on_error(f"the folder {path} cannot be created"):
            Path(path).mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="onceward-storm-") as name:
            yield name
