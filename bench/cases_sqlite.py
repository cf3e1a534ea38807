"""SQLite with one caller, compared with the bare statements and with a lean table. Two files per side, alternating."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from bench import bare, bare_table
from bench.case import KINDS, Call, Case, Cases, Plan, work
from bench.paired import ORDER_OF_A, ORDER_OF_B, alternate
from onceward import Once

LEAN = {"fresh": bare.fresh_on, "replay": bare.replay_on}


def cases(plan: Plan) -> Cases:
    for durability in ("FULL", "NORMAL"):
        for kind, against in ((kind, against) for kind in KINDS for against in ("bare statements", "a lean table")):
            name = f"sqlite {durability}, {kind}, against {against}"
            if not plan.wants(name):
                continue
            block, by_hand = KINDS[kind], same_table if against == "bare statements" else lean_table
            with tempfile.TemporaryDirectory(dir=plan.folder) as folder, ExitStack() as stack:
                ours = [decorated(Path(folder) / f"ours-{n}.db", durability) for n in (0, 1)]
                bares = [by_hand(Path(folder) / f"bare-{n}.db", durability, kind) for n in (0, 1)]
                a, b = ([block(stack.enter_context(one)) for one in side] for side in (ours, bares))
                pace = plan.effort.disk if kind == "fresh" else plan.effort.calls
                yield Case(name, alternate(ORDER_OF_A, *a), alternate(ORDER_OF_B, *b), pace)


@contextmanager
def decorated(path: Path, durability: str) -> Iterator[Call]:
    with Once(f"sqlite:///{path}?synchronous={durability}", window="forever") as once:
        yield once(key="{key}", name="bench")(work)


@contextmanager
def same_table(path: Path, durability: str, _kind: str) -> Iterator[Call]:
    with closing(bare_table.connect(path, durability)) as connection:
        yield bare_table.on(connection.cursor(), work)


@contextmanager
def lean_table(path: Path, durability: str, kind: str) -> Iterator[Call]:
    with closing(bare.connect(path, durability)) as connection:
        yield LEAN[kind](connection.cursor(), work)
