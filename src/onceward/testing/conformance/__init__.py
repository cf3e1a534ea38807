"""The conformance kit: write one class that opens your store, and pytest runs the whole suite on it.

    from onceward.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def open(self, directory, clock):
            return MyStore(directory / "my.db", clock=clock)

Define the class at the top level of a module: the checks with several processes import it by name in child processes.

Describe your store with the class attributes of `StoreFactory`: `shared`, `durable`, `expires_data`, `fake_clock`,
`max_result_size`. Implement the hooks `raw`, `writes` and `overwrite` to let the kit read and change the database
behind the store's back; without a hook, its checks are skipped.

Each check is one `async def`. It runs twice: with the sync runtime and threads, and with an event loop and tasks.
Random histories need Hypothesis, and use its active profile.
"""

from __future__ import annotations

from onceward.errors import ConfigurationError

from .audit import AuditChecks
from .counters import CounterChecks
from .factory import StoreFactory
from .fencing import FencingChecks
from .histories import HistoryChecks
from .key_history import KeyHistoryChecks
from .latest import LatestChecks
from .latest_histories import LatestHistoryChecks
from .latest_listing import LatestListingChecks
from .listing import ListingChecks
from .lookup import LookupChecks
from .processes import ProcessChecks
from .purge import PurgeChecks
from .races import RaceChecks
from .raw import RawChecks
from .reading import ReadingChecks
from .replies import ReplyChecks
from .table import TableChecks
from .values import ValueChecks
from .windows import WindowChecks

if not __debug__:
    raise ConfigurationError("the conformance kit consists of assert statements", hint="run Python without -O")


class StoreConformance(
    TableChecks,
    HistoryChecks,
    FencingChecks,
    ReplyChecks,
    LookupChecks,
    ValueChecks,
    WindowChecks,
    PurgeChecks,
    ReadingChecks,
    AuditChecks,
    ListingChecks,
    LatestChecks,
    LatestHistoryChecks,
    LatestListingChecks,
    CounterChecks,
    KeyHistoryChecks,
    RawChecks,
    RaceChecks,
    ProcessChecks,
):
    """All checks. Subclass it and implement `open`."""


__all__ = ["StoreConformance", "StoreFactory"]
