"""Other libraries, each used as in its documentation, on the same function."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from bench.case import Call, work

EXPIRES = 86_400
"""Seconds. Longer than any run, like our window, but the expiry is checked as with any real setting."""

LEASE = 30.0
"""Seconds, as in the README of exactly-once."""


class NotInstalled(Exception):
    """The peer is not installed; `make bench` installs it."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: make bench installs it")
        self.package = package


def module(name: str, package: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        raise NotInstalled(package) from None


def dogpile_memory() -> Call:
    return _dogpile("dogpile.cache.memory")


def dogpile_memory_pickle() -> Call:
    """Stores results as bytes, as Onceward does: a caller that changes its result does not affect other callers."""
    return _dogpile("dogpile.cache.memory_pickle")


def _dogpile(backend: str) -> Call:
    cache = module("dogpile.cache", "dogpile.cache")
    region = cache.make_region().configure(backend, expiration_time=EXPIRES)
    cached: Call = region.cache_on_arguments()(work)
    return cached


def exactly_once() -> Call:
    """Uses a lease: without one, a key is never taken over after a crash, nor protected while the work runs."""
    library = module("exactly_once", "exactly-once")
    guarded: Call = library.once(library.Store.memory(), key=lambda key: key, lease_ttl=LEASE)(work)
    return guarded


PEERS: dict[str, Callable[[], Call]] = {
    "dogpile memory": dogpile_memory,
    "dogpile memory_pickle": dogpile_memory_pickle,
    "exactly_once with a lease": exactly_once,
}
