"""The systems that have a storm, in the order in which the demo shows them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from onceward.errors import ConfigurationError
from onceward.testing.storm.find_system import find_system

EXAMPLES = Path(__file__).resolve().parents[1]


class Listed(NamedTuple):
    """A system of the mission. `does` is told to people; `kills` a second leave its workers time for their work."""

    name: str
    does: str
    kills: float = 1.2

    @property
    def place(self) -> str:
        return f"examples.{self.name}.storm:SYSTEM"

    @property
    def exists(self) -> bool:
        return (EXAMPLES / self.name / "storm.py").exists()

    def missing(self) -> str:
        """Why it cannot be run here; "" if it can."""
        try:
            find_system(self.place)
        except ConfigurationError as error:
            return str(error)
        return ""


SYSTEMS = tuple(
    listed
    for listed in (
        Listed("documents", "files are read by models, stored and booked", kills=0.5),
        Listed("submissions", "risks are triaged, enriched by a paid API, and priced"),
        Listed("fleet", "health events become the newest state of each service"),
        Listed("outreach", "mails are sent, replies and imports are taken in"),
        Listed("learning", "statements and users go into a warehouse"),
    )
    if listed.exists
)
