"""A job: one delivery of work, with its key, its payload and how to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from onceward.keys.key import Key, Scope, make_key
from onceward.protocol.policy import Policy
from onceward.results.codec import Codec


def _nothing() -> None:
    """Do nothing: the job of a `with` block, whose body is the work."""


NO_NOTE: dict[str, str] = {}
"""A shared empty note, never changed in place. It saves a new dict for every job and record."""


class Job(Struct, frozen=True):
    """`call` does the work. With `verify`, `policy.find` checks whether it was done; both take the same arguments."""

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
    """Written to the note on completion. It drops the stored input, which is no longer needed."""


NO_KEY = make_key(Scope("onceward", "unprotected"), "(no key)")
"""A placeholder for calls without a key that are declared to run anyway (`on_missing_key="run"`)."""
