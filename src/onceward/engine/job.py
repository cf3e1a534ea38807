"""One delivery of work: its key, its payload, and how it is to be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from onceward.keys.key import Key, Scope, make_key
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec


def _nothing() -> None:
    """The work of a claim whose block does it."""


NO_NOTE: dict[str, str] = {}
"""Shared, and never changed in place: by default a job gets dicts of its own, and its record would keep one."""


class Job(Struct, frozen=True):
    """`call` does the work and `find`, under verify, looks whether it was done; both take the same arguments."""

    key: Key
    policy: Policy
    codec: Codec
    fingerprint: bytes = b""
    arguments: dict[str, str] = {}
    call: Callable[..., Any] = _nothing
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    is_async: bool = False
    note: dict[str, str] = {}
    at_end: dict[str, str] = {}
    """What is noted when it is completed: what was kept for others to finish it is no longer needed."""


NO_KEY = make_key(Scope("onceward", "unprotected"), "(no key)")
"""Stands for the key of a call that has none and was declared to run all the same."""
