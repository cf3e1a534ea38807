"""What a store author writes, and how a check becomes a test in two colours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import Any, TypeVar
from unittest import SkipTest

from onceward.protocol.ports import Clock, Store

from .runtimes import COLOURS
from .stage import Stage


class StoreFactory:
    """Opens the store under test. `open` is all that is needed; the hooks below it let the kit see more."""

    shared = True
    """Several processes can open the same place."""

    durable = True
    """What was written is still there after all stores on the place were closed."""

    fake_clock = True
    """The store takes our clock. If it has its own: False, and the kit uses short real leases."""

    tidies = True
    """What has expired goes by the way, or by the server's hand. If it waits for a purge: False."""

    largest = 1 << 20
    """Bytes of the largest result that the kit stores: what a record has room for, where that is less."""

    many = 2_100
    """Events in the largest batch; less for servers that take long over it."""

    examples: int | None = None
    """How many random histories to play, for servers that take long over each; None: as Hypothesis' profile says."""

    def open(self, place: Path, clock: Clock) -> Store:
        """A store that is not open yet. Two calls with the same place give two stores on the same data.

        `place` is an empty folder of this test's own; a server's store may use its name as a prefix or schema.
        """
        raise NotImplementedError("a conformance class needs open(self, place, clock)")

    def raw(self, place: Path, id: bytes) -> Mapping[str, object] | None:  # noqa: ARG002 (a hook)
        """The record as the database holds it, read past the store; None if there is none.

        Fields that are kept as the record has them, under their own names; leave out what is kept in another shape.
        """
        raise SkipTest("no raw() hook: the kit cannot look into the database")

    def writes(self, place: Path) -> int:  # noqa: ARG002 (a hook)
        """A number that is different after every write to this place, and the same after reading."""
        raise SkipTest("no writes() hook: the kit cannot see whether something was written")

    def plant(self, place: Path, id: bytes, **fields: Any) -> None:  # noqa: ARG002 (a hook)
        """Overwrite fields of a record past the store, as another version of the software might have."""
        raise SkipTest("no plant() hook: the kit cannot write records that a store would not")

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Pytest asks this: each check runs once a colour, with the marks that its project knows."""
        if "mode" not in metafunc.fixturenames:
            return
        shows: dict[str, tuple[object, ...]] = getattr(metafunc.function, "shows", {})
        import pytest

        known = {line.partition(":")[0].partition("(")[0].strip() for line in metafunc.config.getini("markers")}
        marks = [getattr(pytest.mark, name)(*what) for name, what in shows.items() if what and name in known]
        metafunc.parametrize("mode", [pytest.param(name, marks=marks) for name in COLOURS])


F = TypeVar("F", bound=StoreFactory)


def check(
    *,
    mission: tuple[str, ...] = (),
    rival: tuple[int, ...] = (),
    fault: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[F, Stage], Coroutine[Any, Any, None]]], Callable[[F, str, Path], None]]:
    """Turn a colourless body into a test that takes a colour. `needs` names what the store must be able to do."""

    def decorate(body: Callable[[F, Stage], Coroutine[Any, Any, None]]) -> Callable[[F, str, Path], None]:
        def test(self: F, mode: str, tmp_path: Path) -> None:
            require(self, *needs)
            run(self, mode, tmp_path, body)

        update_wrapper(test, body)
        del test.__wrapped__  # type: ignore[attr-defined] # pytest would look for the body's arguments
        test.shows = {"mission": mission, "rival": rival, "fault": fault}  # type: ignore[attr-defined]  # told to pytest
        return test

    return decorate


def require(kit: StoreFactory, *abilities: str) -> None:
    for ability in abilities:
        if not getattr(kit, ability):
            raise SkipTest(f"this store says {ability} = False")


def run(kit: F, mode: str, place: Path, body: Callable[[F, Stage], Coroutine[Any, Any, None]]) -> None:
    """Play a body on a stage of its own, and close whatever it opened."""
    chosen = COLOURS[mode]

    async def play() -> None:
        stage = Stage(kit, chosen, place)
        try:
            await body(kit, stage)
        finally:
            await stage.end()

    chosen.run(play())
