"""Systems that break the storm's contract, and one that is as fast as possible."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

from onceward.testing.storm import Audit, HandlerResult, StormEvent, StormSetting
from tests.chaos.orders import Orders


class Instant(Orders):
    """Returns immediately, so that a kill often comes too late."""

    name = "instant"

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        return lambda event: HandlerResult("executed")

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        return Audit(expected=0, effects=0)


class Ending(Instant):
    """Its events end."""

    name = "ending"

    def events(self, dice: random.Random) -> Iterator[StormEvent]:
        return islice(super().events(dice), 30)


class Mute(Instant):
    """Its handler returns None."""

    name = "mute"
    says: Any = None

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        return lambda event: cast("HandlerResult", self.says)


class Misspelt(Mute):
    """Its handler returns an unknown kind."""

    name = "misspelt"
    says = HandlerResult(cast("Any", "exectued"))


class Unaudited(Instant):
    """Its audit raises an exception."""

    name = "unaudited"

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        raise RuntimeError("the tables are gone")


class Closed(Instant):
    """It cannot be opened."""

    name = "closed"

    @contextmanager
    def open(self, setting: StormSetting) -> Iterator[dict[str, str]]:
        if setting.folder:
            raise ConnectionRefusedError("no server is running")
        yield {}


INSTANT, ENDING, MUTE, MISSPELT = Instant(), Ending(), Mute(), Misspelt()
UNAUDITED, CLOSED = Unaudited(), Closed()
