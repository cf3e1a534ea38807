"""What can be observed and changed on a running client: events, counts, integrations, and when it stops."""

from __future__ import annotations

import os
from collections.abc import Callable

from onceward.engine.events import Listener
from onceward.engine.open_transaction import Finder, FindTransaction
from onceward.engine.rollout import Mode, parse_mode

from .declarations import DeclaringEngine

MODE_VARIABLE = "ONCEWARD_MODE"


class ClientControls:
    """The part of a client that observes and controls its engine."""

    engine: DeclaringEngine

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function for every event of this client.

        Args:
            listener: Called with an `Event`, in the thread where it happens. It must be fast and must not raise; an
                exception is logged and ignored.

        Returns:
            A function that unsubscribes the listener.
        """
        return self.engine.bus.subscribe(listener)

    @property
    def counts(self) -> dict[str, int]:
        """How often each event has happened in this client, whether or not it has listeners."""
        return {name: number for name, number in self.engine.bus.counts.items() if number}

    def stop(self) -> None:
        """Stop claiming; running work continues. It may be called from a signal handler."""
        self.engine.stopping = True

    @property
    def mode(self) -> Mode:
        """What this client does with duplicates: `enforce`, `observe` or `off`. Assign it to change it at run time."""
        return self.engine.rollout.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        before, after = self.mode, parse_mode(mode, "once.mode")
        self.engine.rollout.set(after)
        if after != before:
            self.engine.report("mode_changed", f"{before} → {after}")

    def _set_first_mode(self, mode: Mode | None) -> None:
        """Set the mode from the environment, else from the argument: an operator must be able to override the code."""
        self._mode = mode
        from_environment = os.environ.get(MODE_VARIABLE)
        if from_environment:
            self.mode = parse_mode(from_environment, f"${MODE_VARIABLE}")
        elif mode is not None:
            self.mode = parse_mode(mode, "mode=")

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
