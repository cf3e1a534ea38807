"""The conformance kit: a store author writes one factory and gets the whole suite, in both colours.

    from onceward.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def open(self, place, clock):
            return MyStore(place / "my.db", clock=clock)

Put it at the top level of a module that a child process can import: the races of processes open the place themselves.
Say `shared = False`, `durable = False`, `tidies = False` or `fake_clock = False` if so, and `largest` if results
are small; the hooks `raw`, `writes` and `plant` let the kit look into the database. Each check's body exists once, as a
colourless `async def`, and runs with the bridge and threads, then with an event loop and tasks. Random histories need
Hypothesis, and follow its profile.
"""

from __future__ import annotations

from onceward.errors import ConfigurationError

from .audit import AuditChecks
from .counters import CounterChecks
from .factory import StoreFactory, check
from .fencing import FencingChecks
from .histories import HistoryChecks
from .immediate import ImmediateChecks
from .latest import LatestChecks
from .latest_histories import LatestHistoryChecks
from .latest_listing import LatestListingChecks
from .lookup import LookupChecks
from .processes import ProcessChecks
from .purge import PurgeChecks
from .races import RaceChecks
from .raw import RawChecks
from .reading import ReadingChecks
from .replies import ReplyChecks
from .stage import Caller, Stage
from .table import TableChecks
from .values import ValueChecks
from .windows import WindowChecks

if not __debug__:
    raise ConfigurationError("the conformance kit is made of asserts", hint="run Python without -O")


class StoreConformance(
    TableChecks,
    HistoryChecks,
    FencingChecks,
    ReplyChecks,
    LookupChecks,
    ImmediateChecks,
    ValueChecks,
    WindowChecks,
    PurgeChecks,
    ReadingChecks,
    AuditChecks,
    LatestChecks,
    LatestHistoryChecks,
    LatestListingChecks,
    CounterChecks,
    RawChecks,
    RaceChecks,
    ProcessChecks,
):
    """Everything that a store must do. Subclass it and say how to open yours."""


__all__ = ["Caller", "Stage", "StoreConformance", "StoreFactory", "check"]
