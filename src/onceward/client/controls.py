"""What can be observed and changed on a running client: events, counts, integrations, and when it stops."""

from __future__ import annotations

from collections.abc import Callable

from onceward.engine.events import Listener
from onceward.engine.open_transaction import Finder, FindTransaction

from .declarations import DeclaringEngine


class ClientControls:
    """The part of a client that observes and controls its engine."""

    engine: DeclaringEngine

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every event of this client. Return a function that unsubscribes it."""
        return self.engine.bus.subscribe(listener)

    @property
    def counts(self) -> dict[str, int]:
        """How often each event has happened in this client, whether or not it has listeners."""
        return {name: number for name, number in self.engine.bus.counts.items() if number}

    def stop(self) -> None:
        """Stop claiming; running work continues. It may be called from a signal handler."""
        self.engine.stopping = True

    def add_transaction_finder(
        self, find: FindTransaction, uncommitted: FindTransaction | None = None
    ) -> Callable[[], None]:
        """Register an integration: `find()` returns the caller's open connection or session, or None.

        It is called before each call of this client. Return only a transaction of the database that holds the records,
        as an object that `within` accepts. The setting `open_transaction` says what happens then. `uncommitted` is
        called when work has returned. It is like `find`, but ignores transactions that have changed nothing
        (default: `find`). Return a function that removes both.
        """
        finders, finder = self.engine.open_transactions.finders, Finder(find, uncommitted or find)
        finders.append(finder)

        def remove() -> None:
            if finder in finders:
                finders.remove(finder)

        return remove
