"""The systems of the demo, in the order in which it runs them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from onceward.errors import ConfigurationError
from onceward.testing.storm.find_system import find_system

EXAMPLES = Path(__file__).resolve().parents[1]


class DemoSystem(NamedTuple):
    """One example system. `kills` is the number of kills per second, low enough that the workers finish their work."""

    name: str
    description: str
    kills: float = 1.2

    @property
    def path(self) -> str:
        return f"examples.{self.name}.storm:SYSTEM"

    @property
    def exists(self) -> bool:
        return (EXAMPLES / self.name / "storm.py").exists()

    def missing(self) -> str:
        """Return why the system cannot run here, or an empty string if it can."""
        try:
            find_system(self.path)
        except ConfigurationError as error:
            return str(error)
        return ""


SYSTEMS = tuple(
    listed
    for listed in (
        DemoSystem("documents", "files are read by models, stored and booked", kills=0.5),
        DemoSystem("submissions", "risks are triaged, enriched by a paid API, and priced"),
        DemoSystem("fleet", "health events become the latest state of each service"),
        DemoSystem("outreach", "mails are sent, replies and imports are processed"),
        DemoSystem("learning", "statements and users are loaded into a warehouse"),
    )
    if listed.exists
)
