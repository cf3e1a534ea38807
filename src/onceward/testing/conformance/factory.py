"""The class that a store author subclasses, and the decorator that turns a check into two tests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import Any, TypeVar
from unittest import SkipTest

from onceward.protocol.ports import Clock, Store

from .harness import Harness
from .runtimes import RUNTIME_KINDS


class StoreFactory:
    """Opens the store under test. Only `open` is required; the hooks let the kit check more."""

    shared = True
    """Whether several processes can open the same directory."""

    durable = True
    """Whether data survives after all stores on the directory were closed."""

    fake_clock = True
    """Whether the store uses the clock passed to `open`. If False, the kit uses short leases in real time."""

    expires_data = True
    """Whether the store or its server deletes expired data by itself. If False, only a purge deletes it."""

    max_result_size = 1 << 20
    """Bytes of the largest result that the kit stores. Reduce it if the store has a lower limit."""

    max_batch_size = 2_100
    """Events in the largest batch. Reduce it for slow servers."""

    examples: int | None = None
    """Number of random histories, for slow servers. None: the setting of the Hypothesis profile."""

    def open(self, directory: Path, clock: Clock) -> Store:
        """Return a store that is not open yet. Two calls with the same directory return two stores on the same data.

        `directory` is an empty directory for this test. A store on a server can use its name as a prefix or schema.
        `clock` is the clock to use, unless `fake_clock` is False.
        """
        raise NotImplementedError("a conformance class needs open(self, directory, clock)")

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:  # noqa: ARG002 (a hook)
        """Read the record `id` directly from the database in `directory`, not through the store. Optional.

        Return the fields whose stored form equals that of `Record`, under the same names, and omit the others. Return
        None if there is no such record. By default it raises `SkipTest`: checks that need it are skipped.
        """
        raise SkipTest("no raw() hook: the kit cannot read the database directly")

    def writes(self, directory: Path) -> int:  # noqa: ARG002 (a hook)
        """Return a number that changes with every write to this `directory`, and does not change with reads. Optional.

        By default it raises `SkipTest`: checks that need it are skipped.
        """
        raise SkipTest("no writes() hook: the kit cannot detect writes")

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:  # noqa: ARG002 (a hook)
        """Overwrite `fields` of the record `id` directly in the database in `directory`. Optional.

        The kit uses it to write what another version of the software might write. By default it raises `SkipTest`:
        checks that need it are skipped.
        """
        raise SkipTest("no overwrite() hook: the kit cannot write records that the store itself would not write")

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Called by pytest: run each check once per runtime kind, with the markers that the project has registered."""
        if "mode" not in metafunc.fixturenames:
            return
        markers: dict[str, tuple[object, ...]] = getattr(metafunc.function, "markers", {})
        import pytest

        known = {line.partition(":")[0].partition("(")[0].strip() for line in metafunc.config.getini("markers")}
        marks = [getattr(pytest.mark, name)(*what) for name, what in markers.items() if what and name in known]
        metafunc.parametrize("mode", [pytest.param(name, marks=marks) for name in RUNTIME_KINDS])


F = TypeVar("F", bound=StoreFactory)


def check(
    *,
    mission: tuple[str, ...] = (),
    rival: tuple[int, ...] = (),
    fault: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[F, Harness], Coroutine[Any, Any, None]]], Callable[[F, str, Path], None]]:
    """Turn the body of a check into a test. `needs` names class attributes of the factory that must be true.

    `mission`, `rival` and `fault` become the pytest marks of these names.
    """

    def decorate(body: Callable[[F, Harness], Coroutine[Any, Any, None]]) -> Callable[[F, str, Path], None]:
        def test(self: F, mode: str, tmp_path: Path) -> None:
            require(self, *needs)
            run_check(self, mode, tmp_path, body)

        update_wrapper(test, body)
        del test.__wrapped__  # type: ignore[attr-defined] # pytest would look for the body's arguments
        test.markers = {"mission": mission, "rival": rival, "fault": fault}  # type: ignore[attr-defined]
        return test

    return decorate


def require(kit: StoreFactory, *capabilities: str) -> None:
    for capability in capabilities:
        if not getattr(kit, capability):
            raise SkipTest(f"this store has {capability} = False")


def run_check(kit: F, mode: str, directory: Path, body: Callable[[F, Harness], Coroutine[Any, Any, None]]) -> None:
    """Run the body of a check with its own harness, and close everything it opened."""
    runtime_kind = RUNTIME_KINDS[mode]

    async def run_body() -> None:
        harness = Harness(kit, runtime_kind, directory)
        try:
            await body(kit, harness)
        finally:
            await harness.close()

    runtime_kind.run(run_body())
