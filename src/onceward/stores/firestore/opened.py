"""What exists while a store is open, and how its methods call the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onceward.errors import StoreUnavailable
from onceward.protocol.runtime import Runtime

from .calls import FirestoreCalls
from .documents import Records
from .errors import FirestoreError, error_for
from .latest_documents import LatestDocuments
from .table import FirestoreTable
from .transport import FirestoreTransport


class OpenState(NamedTuple):
    """The parts that exist while the store is open."""

    runtime: Runtime
    transport: FirestoreTransport
    calls: FirestoreCalls
    table: FirestoreTable
    states: LatestDocuments


class OpenedStore:
    """The base class of the store's parts. They share the open state."""

    name: str
    _records: Records
    _open: OpenState | None

    @property
    def _opened(self) -> OpenState:
        if self._open is None:
            raise StoreUnavailable(
                f"{self.name} is not open", hint="open the store before the first call and close it after the last"
            )
        return self._open

    @property
    def _calls(self) -> FirestoreCalls:
        return self._opened.calls

    @property
    def _states(self) -> LatestDocuments:
        return self._opened.states

    @contextmanager
    def _call(self, timeout: float) -> Iterator[float]:
        """Yield the deadline of a call. Translate the errors of the server."""
        try:
            yield time.monotonic() + timeout
        except FirestoreError as error:
            raise error_for(error, self.name) from error
