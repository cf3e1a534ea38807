"""What can be observed and changed on a running client: events, counts, integrations, and when it stops."""

from __future__ import annotations

from collections.abc import Callable

from onceward.engine.events import Listener
from onceward.engine.open_transaction import FindTransaction

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

    def add_transaction_finder(self, find: FindTransaction) -> Callable[[], None]:
        """Register an integration: `find()` returns the caller's open connection or session, or None.

        It is called before each call of this client. Return only a transaction of the database that holds the records,
        as an object that `within` accepts. The setting `open_transaction` says what happens then. Return a function
        that removes it.
        """
        finders = self.engine.open_transactions.finders
        finders.append(find)

        def remove() -> None:
            if find in finders:
                finders.remove(find)

        return remove
