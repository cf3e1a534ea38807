"""The cost of a call in a store with a million keys, compared with a thousand keys, fresh and replayed, in both stores.

Each block of fresh calls gets a new small store, so that it stays small; replays use random keys of the whole store.
SQLite is measured with synchronous=NORMAL: waiting for the disk would hide the cost of size.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from bench.case import Call, Case, Cases, Plan, calling, fresh
from bench.paired import Block, Pace, Run
from onceward import Once, open_store
from onceward.operations.function import Function
from onceward.protocol.ports import Store
from onceward.protocol.requests import ClaimRequest, Complete
from onceward.runtime.threads import nonce, run
from onceward.stores import MemoryStore

KINDS = ("fresh", "replay")
BATCH = 5_000
TIMEOUT = 600.0
LEASE = 600 * 1_000_000
DONE = "done"

MakeStore = Callable[[], Store]


def cases(plan: Plan) -> Cases:
    yield from _both("memory", plan, MemoryStore, plan.effort.calls)
    files = (f"sqlite:///{plan.folder}/keys-{number}.db?synchronous=NORMAL" for number in count())
    yield from _both("sqlite", plan, lambda: open_store(next(files)), plan.effort.log)


def _both(storage: str, plan: Plan, make: MakeStore, pace: Pace) -> Cases:
    names = {kind: f"{storage} at a million keys, {kind}, against a thousand" for kind in KINDS}
    wanted = [kind for kind in KINDS if plan.wants(names[kind])]
    if not wanted:
        return
    effort = plan.effort
    with filled(make(), effort.many, label=storage) as large, frozen_objects():
        if "replay" in wanted:  # first: fresh calls add keys
            with filled(make(), effort.few) as small:
                yield Case(names["replay"], at_random(large, effort.many), at_random(small, effort.few), effort.calls)
        if "fresh" in wanted:
            with ExitStack() as smalls:
                yield Case(names["fresh"], fresh(large), new_store_per_block(make, effort.few, smalls), pace)


def at_random(call: Call, size: int) -> Block:
    rng = random.Random(size)
    return lambda times: calling(call, [text(number) for number in rng.choices(range(size), k=times)])


def new_store_per_block(make: MakeStore, size: int, open_now: ExitStack) -> Block:
    """Make fresh calls on a new small store for each block. The previous store is closed."""

    def block(times: int) -> Run:
        open_now.close()
        call = open_now.enter_context(filled(make(), size))
        return fresh(call)(times)

    return block


@contextmanager
def filled(store: Store, size: int, label: str = "") -> Iterator[Function[[str], str]]:
    """Yield a function whose keys 0 to size are completed."""
    with Once(store, window="forever", fingerprint="none") as once:

        @once(key="{key}", name="bench")
        def call(key: str) -> str:  # noqa: ARG001 (the key is all that matters)
            return DONE

        fill(store, call, size, label)
        yield call


@contextmanager
def frozen_objects() -> Iterator[None]:
    """Exclude existing objects from garbage collection, which would take longer than the blocks."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def fill(store: Store, call: Function[[str], str], size: int, label: str = "") -> None:
    """Claim and complete keys directly in the store, in large batches: a million calls would take minutes."""
    call(text(0))
    model = run(store.read([call.key(text(0)).id], timeout=TIMEOUT))[0].record
    assert model is not None
    for start in range(1, size, BATCH):
        keys = [call.key(text(number)) for number in range(start, min(start + BATCH, size))]
        requests = [ClaimRequest(key.id, key.scope.text, key.text, nonce(), LEASE) for key in keys]
        granted = [answer.record for answer in run(store.claim(requests, timeout=TIMEOUT))]
        settlements = [
            Complete(record.id, record.token, record.nonce, model.result, model.digest) for record in granted if record
        ]
        run(store.settle(settlements, timeout=TIMEOUT))
        if label:
            print_progress(label, start + len(keys), size)
    assert call.outcome(text(size - 1)).reason == "replayed"


def text(number: int) -> str:
    return f"key:{number}"


def print_progress(storage: str, done: int, size: int) -> None:
    """Print a line after every tenth: filling takes a minute or more."""
    if done * 10 // size > (done - BATCH) * 10 // size:
        print(f"filling {storage}: {done:,} of {size:,} keys", file=sys.stderr, flush=True)
