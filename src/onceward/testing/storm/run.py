"""One run from the traffic to the audit."""

from __future__ import annotations

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

from .backlog import Backlog
from .contract import Audit, Effect, Setting
from .errors import Trouble
from .find_system import find_system
from .plan import Plan
from .score import Score
from .supervisor import Supervisor
from .traffic import Traffic


class Run(Struct, frozen=True):
    """What the audit found, what the workers said, and how many seconds it took."""

    system: str
    effects: list[Effect]
    plan: Plan
    events: int
    score: Score
    audit: Audit
    took: float


def nobody(_score: Score) -> None:
    """Looks at no scoreboard."""


def storm(system: str, plan: Plan, show: Callable[[Score], None] = nobody) -> Run:
    """The system at `module:NAME` in a storm, then its audit. Raises `Trouble` if the run cannot be finished."""
    found = find_system(system)
    started = time.monotonic()
    with _folder(plan.folder) as folder:
        setting = Setting(folder=folder, run=secrets.token_hex(4), store=plan.store, guarded=plan.guarded)
        with ExitStack() as opened:
            with _as_trouble(f"{found.name} could not be opened"):
                setting = replace(setting, services=dict(opened.enter_context(found.open(setting))))
            traffic = Traffic(found.events(random.Random(f"{plan.seed} events")), plan)
            supervisor = Supervisor(system, plan, setting, Backlog(traffic))
            supervisor.run(show)
            events = traffic.events
            if not events:
                raise Trouble("nothing was delivered, so nothing is shown: let it run for longer")
            with _as_trouble(f"the audit of {found.name} could not be made"):
                audit = found.audit(setting, events)
    took = time.monotonic() - started
    return Run(found.name, list(found.effects), plan, len(events), supervisor.score, audit, took)


@contextmanager
def _as_trouble(what: str) -> Iterator[None]:
    try:
        yield
    except (Trouble, OncewardError):
        raise
    except Exception as error:
        raise Trouble(f"{what}: {error!r}") from error


@contextmanager
def _folder(wanted: str) -> Iterator[str]:
    if wanted:
        with _as_trouble(f"the folder {wanted} cannot be made"):
            Path(wanted).mkdir(parents=True, exist_ok=True)
        yield wanted
    else:
        with tempfile.TemporaryDirectory(prefix="onceward-storm-") as name:
            yield name
