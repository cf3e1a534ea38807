"""In memory: the decorator compared with other libraries, and a prepared key compared with a dict and a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench import bare
from bench.case import KINDS, Call, Case, Cases, Missing, Plan, work
from bench.paired import Run
from bench.peers import PEERS, NotInstalled
from onceward import Once
from onceward.stores import MemoryStore


def cases(plan: Plan) -> Cases:
    for peer, make in PEERS.items():
        for kind, block in KINDS.items():
            name = f"memory @once, {kind}, against {peer}"
            if not plan.wants(name):
                continue
            try:
                theirs = make()
            except NotInstalled as missing:
                yield Missing(name, missing.package)
                continue
            with decorated() as ours:
                yield Case(name, block(ours), block(theirs), plan.effort.calls)
    for kind, block in KINDS.items():
        name = f"memory ready key, {kind}, against dict + lock"
        if plan.wants(name):
            with ready() as ours:
                yield Case(
                    name,
                    block(ours.call, ours.make, calling_nothing),
                    block(bare.Memory().run, loop=calling_nothing),
                    plan.effort.calls,
                )


@contextmanager
def decorated() -> Iterator[Call]:
    """Use the decorator, as most people do."""
    with Once(MemoryStore(), window="forever") as once:
        yield once(key="{key}", name="bench")(work)


class Ready(NamedTuple):
    """`make` converts a text into a key, outside of the measurement. `call(key, fn)` is measured."""

    make: Callable[[str], Any]
    call: Callable[[Any, Callable[[], object]], object]


@contextmanager
def ready() -> Iterator[Ready]:
    """The fastest way to call if the key is already known. Change it here only."""
    with Once(MemoryStore(), window="forever", fingerprint="none") as once:
        yield Ready(once.key, once.run)


def nothing() -> None:
    """The work for a prepared key."""


def calling_nothing(call: Callable[..., object], keys: Sequence[Any]) -> Run:
    def run() -> None:
        for key in keys:
            call(key, nothing)

    return run
