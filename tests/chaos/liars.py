"""Systems that do not keep the storm's contract, and one that is as quick as can be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

from onceward.testing.storm import Audit, Event, HandlerResult, Setting
from tests.chaos.orders import Orders


class Instant(Orders):
    """Answers at once, so that a kill often comes too late."""

    name = "instant"

    def worker(self, setting: Setting) -> Callable[[Event], HandlerResult]:
        return lambda event: HandlerResult("executed")

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        return Audit(expected=0, effects=0)


class Ending(Instant):
    """Its world ends."""

    name = "ending"

    def events(self, dice: random.Random) -> Iterator[Event]:
        return islice(super().events(dice), 30)


class Mute(Instant):
    """Its handler forgets to return what it says."""

    name = "mute"
    says: Any = None

    def worker(self, setting: Setting) -> Callable[[Event], HandlerResult]:
        return lambda event: cast("Answer", self.says)


class Misspelt(Mute):
    """Its handler says what nobody knows."""

    name = "misspelt"
    says = HandlerResult(cast("Any", "exectued"))


class Unaudited(Instant):
    """Its audit breaks."""

    name = "unaudited"

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        raise RuntimeError("the tables are gone")


class Closed(Instant):
    """It cannot be opened."""

    name = "closed"

    @contextmanager
    def open(self, setting: Setting) -> Iterator[dict[str, str]]:
        if setting.folder:
            raise ConnectionRefusedError("nobody is there")
        yield {}


INSTANT, ENDING, MUTE, MISSPELT = Instant(), Ending(), Mute(), Misspelt()
UNAUDITED, CLOSED = Unaudited(), Closed()
