"""A time limit on an event loop, for calls of an async library that has none. Imported only by async code."""

from __future__ import annotations

import asyncio


def loop_timeout(seconds: float) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError after this many seconds."""
    return asyncio.timeout(seconds)
