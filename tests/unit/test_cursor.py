"""The cursor of a schedule: two ordinary records of which the larger one counts. It never moves back or gets lost."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from onceward.engine.engine import Engine
from onceward.errors import StoreUnavailable
from onceward.keys.key import Scope
from onceward.protocol.capabilities import Capabilities
from onceward.protocol.policy import Policy
from onceward.schedules.cron import timetable
from onceward.schedules.cursor import Cursor, cursor_of, move
from onceward.schedules.definition import Schedule
from onceward.testing.clock import FakeClock
from tests.clients import Backend, SyncClient

SCHEDULE = Schedule("report", Scope("default", "schedule:report"), Policy(), timetable=timetable("0 * * * *", "UTC"))


class Mover:
    """One runner that moves the cursor, call by call."""

    def __init__(self, client: SyncClient) -> None:
        self.client = client
        self.engine: Engine = client.once.engine
        client.drive(self.engine.ready())

    def read(self) -> Cursor | None:
        ids = [key.id for key in SCHEDULE.cursors]
        return cursor_of(self.client.drive(self.engine.store.read(ids, timeout=5)))

    def move(self, to: int, missed: int = 0, seen: Cursor | None = None) -> bool:
        moved: bool = self.client.drive(move(self.engine, SCHEDULE, seen or self.read(), to, missed))
        return moved


def test_it_moves_forward_and_keeps_the_count(client: SyncClient) -> None:
    mover = Mover(client)
    assert mover.read() is None
    for to in range(1, 6):
        assert mover.move(to, missed=2 * to)
        cursor = mover.read()
        assert cursor is not None
        assert (cursor.considered, cursor.missed) == (to, 2 * to)


def test_no_purge_takes_it(client: SyncClient) -> None:
    mover = Mover(client)
    mover.move(1), mover.move(2)
    client.clock.advance("1000d")
    assert client.purge() == 0
    cursor = mover.read()
    assert cursor is not None
    assert cursor.considered == 2


def test_of_several_movers_that_read_the_same_cursor_one_moves_it(client: SyncClient) -> None:
    movers = [Mover(client.another()) for _ in range(3)]
    movers[0].move(1), movers[0].move(2)
    seen = [mover.read() for mover in movers]
    assert [mover.move(to, seen=one) for mover, to, one in zip(movers, (5, 4, 3), seen, strict=True)] == [
        True,
        False,
        False,
    ]
    cursor = movers[2].read()
    assert cursor is not None
    assert cursor.considered == 5


def test_a_mover_that_dies_between_two_steps_leaves_the_cursor_unchanged_and_others_continue(
    client: SyncClient,
) -> None:
    """Stop before each call of a move: a move never changes the larger record."""
    mover = Mover(client)
    mover.move(1), mover.move(2)
    for reached, verb in enumerate(("forget", "claim", "settle")):
        before = mover.read()
        assert before is not None
        with client.store_trouble(verb), pytest.raises(StoreUnavailable):
            mover.move(before.considered + 1)
        after = mover.read()
        assert after is not None
        assert after.considered == before.considered, reached
        client.clock.advance("11s")  # the lease of the mover that claimed it and died
        assert mover.move(before.considered + 1)


STEPS = 3  # of a move: forget, claim, settle


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("ab" * STEPS))))
def test_in_whatever_order_the_steps_of_two_movers_come_it_never_goes_back(
    order: tuple[str, ...], tmp_path: Path, clock: FakeClock
) -> None:
    client = SyncClient(Backend("memory", tmp_path, clock))
    movers = {"a": Mover(client), "b": Mover(client.another())}
    movers["a"].move(1), movers["a"].move(2)
    targets = {"a": 3, "b": 4}
    flows: dict[str, Coroutine[Any, Any, bool]] = {}
    for name, mover in movers.items():
        sound = mover.engine
        steps: Any = Steps(sound.store)  # as much of a store as it needs
        gated = Engine(steps, sound.runtime, sound.heartbeat, sound.bus, sound.owner)
        flows[name] = move(gated, SCHEDULE, mover.read(), targets[name], 0)
    for name in ("a", "b", *order):
        try:
            flows[name].send(None)
        except (StopIteration, RuntimeError):  # it has ended
            continue
        cursor = movers["a"].read()
        assert cursor is not None
        assert cursor.considered >= 2
    for flow in flows.values():
        flow.close()
    client.close()


class Steps(Capabilities):
    """A store that pauses before each call, so that the test decides which mover continues."""

    inline = False

    def __init__(self, store: Any) -> None:
        self._store = store

    async def forget(self, *args: Any, **kwargs: Any) -> Any:
        await Pause()
        return await self._store.forget(*args, **kwargs)

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        await Pause()
        return await self._store.claim(*args, **kwargs)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        await Pause()
        return await self._store.settle(*args, **kwargs)


class Pause:
    """Suspends once."""

    def __await__(self) -> Any:
        yield
