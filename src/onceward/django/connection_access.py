"""Use Django's own connection of this thread, where Django allows queries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections


@contextmanager
def django_connection(alias: str) -> Iterator[Any]:
    """Yield Django's connection of this thread, connected.

    Raise Django's or pytest-django's own error in a test that may not use the database. A connection that is opened
    here on another thread than the main one is closed again: nothing else would close it.
    """
    connection = connections[alias]
    was_open = connection.connection is not None
    connection.cursor().close()
    try:
        yield connection
    finally:
        if not was_open and not connection.in_atomic_block and not _is_main_thread():
            connection.close()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
