"""In memory: through the decorator beside its peers, and with a ready key beside a dict and a lock."""

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
                    block(ours.call, ours.make, doing_nothing),
                    block(bare.Memory().run, loop=doing_nothing),
                    plan.effort.calls,
                )


@contextmanager
def decorated() -> Iterator[Call]:
    """As most people use it."""
    with Once(MemoryStore(), window="forever") as once:
        yield once(key="{key}", name="bench")(work)


class Ready(NamedTuple):
    """`make` turns a text into what a call needs; that is done beforehand. `call(made, fn)` is measured."""

    make: Callable[[str], Any]
    call: Callable[[Any, Callable[[], object]], object]


@contextmanager
def ready() -> Iterator[Ready]:
    """The quickest way that the API offers to those who have their key at hand. The one place to change it."""
    with Once(MemoryStore(), window="forever", fingerprint="none") as once:
        yield Ready(once.key, once.run)


def nothing() -> None:
    """The work under a ready key."""


def doing_nothing(call: Callable[..., object], keys: Sequence[Any]) -> Run:
    def run() -> None:
        for key in keys:
            call(key, nothing)

    return run
