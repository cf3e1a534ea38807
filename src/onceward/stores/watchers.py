"""Wake the callers in this process that wait for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Watchers:
    """Callbacks by record id. Needs no lock: every operation is a single step under the GIL."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[object, Callable[[], None]]] = {}

    def watch(self, id: bytes, wake: Callable[[], None]) -> Callable[[], None]:
        ticket = object()
        self._waiting.setdefault(id, {})[ticket] = wake

        def stop() -> None:
            waiting = self._waiting.get(id)
            if waiting is not None:
                waiting.pop(ticket, None)
                if not waiting:
                    self._waiting.pop(id, None)

        return stop

    def watched_keys(self) -> int:
        """Return how many keys the callers in this process are waiting for."""
        return len(self._waiting)

    def wake(self, ids: Iterable[bytes]) -> None:
        if not self._waiting:
            return
        for id in ids:
            for wake in tuple(self._waiting.get(id, {}).values()):
                wake()
