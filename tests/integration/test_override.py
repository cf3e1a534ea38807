"""Testing the user's application: another store for a module-level client, and the fixtures of the pytest plugin."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import AsyncOnce, ConfigurationError, Executed, Once, Replayed
from onceward.stores import MemoryStore
from onceward.testing import FakeClock, override

pytestmark = pytest.mark.finding("N8")


class App:
    """An application with a module-level client on a file, and functions that were decorated at import."""

    def __init__(self, url: str) -> None:
        self.once = once = Once(url, app="shop")
        self.calls: list[int] = []
        self.notified: list[int] = []

        @once(key="{n}", window="1h")
        def charge(n: int) -> int:
            self.calls.append(n)
            return len(self.calls)

        @once(key="{n}")
        async def notify(n: int) -> int:
            self.notified.append(n)
            return len(self.notified) + 100

        self.charge, self.notify = charge, notify


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'shop.db'}")


def test_functions_that_are_already_decorated_use_the_other_store(app: App) -> None:
    assert app.charge(1) == 1
    with override(app.once) as store:
        assert app.once.store is store
        assert [app.charge(1), app.charge(1)] == [2, 2]
        assert app.once.using(window="2h").run("x", lambda: 1) == 1
        assert [asyncio.run(app.notify(1)), asyncio.run(app.notify(1))] == [101, 101]
    assert [app.charge(1), app.once.read("x")] == [1, None]
    assert asyncio.run(app.notify(1)) == 102, "the override's record is gone"
    app.once.close()


def test_a_fake_clock_moves_the_windows_of_a_module_level_function(app: App) -> None:
    clock = FakeClock()
    with override(app.once, clock=clock):
        assert isinstance(app.charge.outcome(1), Executed)
        assert isinstance(app.charge.outcome(1), Replayed)
        clock.advance("1h")
        assert isinstance(app.charge.outcome(1), Executed)
    app.once.close()


def test_overrides_nest_and_leave_nothing_behind(app: App) -> None:
    own, heartbeat = app.once.store, app.once.heartbeat
    with override(app.once) as outer:
        app.charge(1)
        with override(app.once, store=MemoryStore()) as inner:
            assert app.once.store is inner
            assert app.charge(1) == 2
        assert app.once.store is outer
        assert app.charge(1) == 1
    assert (app.once.store, app.once.heartbeat) == (own, heartbeat)
    app.once.close()


def test_overrides_that_do_not_nest_are_refused(app: App) -> None:
    outer, inner = override(app.once), override(app.once)
    with outer:
        inner.__enter__()
        with pytest.raises(ConfigurationError, match="a later override of this client is still active"):
            outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)
    assert app.charge(1) == app.charge(1), "the client works as before"
    app.once.close()


def test_an_application_that_closes_its_client_can_be_tested_again(app: App) -> None:
    for _ in range(2):
        with override(app.once):
            app.charge(1)
            app.once.close()
    assert app.calls == [1, 1]
    assert app.charge(2) == 3
    app.once.close()
    with override(app.once):
        assert app.charge(2) == 4


def test_a_store_on_a_file_is_closed_afterwards(app: App, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    for expected in (1, 1):
        with override(app.once, store=url):
            assert app.charge(1) == expected
            asyncio.run(app.notify(1))
    app.once.close()


def test_an_async_client_is_overridden_too(tmp_path: Path) -> None:
    once = AsyncOnce(f"sqlite:///{tmp_path / 'shop.db'}")
    calls: list[int] = []

    @once(key="{n}", window="1h")
    async def charge(n: int) -> int:
        calls.append(n)
        return len(calls)

    async def main() -> list[int]:
        clock = FakeClock()
        async with override(once, clock=clock):
            found = [await charge(1), await charge(1)]
            clock.advance("1h")
            found.append(await charge(1))
        found.append(await charge(1))
        return found

    assert asyncio.run(main()) == [1, 1, 2, 3]

    async def close() -> None:
        await once.close()

    asyncio.run(close())


def test_mistakes_are_explained(app: App) -> None:
    with pytest.raises(ConfigurationError, match="cannot set the clock"):
        override(app.once, store=MemoryStore(), clock=FakeClock())
    one = override(app.once)
    with pytest.raises(ConfigurationError, match="not active"):
        one.__exit__(None, None, None)
    with one, pytest.raises(ConfigurationError, match="already active"):
        one.__enter__()
    app.once.close()


USERS_TESTS = """
import pytest
from onceward import Once
from onceward.testing import override

once = Once("postgresql://nobody@127.0.0.1:1/production")
calls = []

@once(key="{n}", window="1h")
def charge(n: int) -> int:
    calls.append(n)
    return len(calls)

@pytest.fixture
def shop(once_store):
    calls.clear()
    with override(once, store=once_store):
        yield

@pytest.mark.parametrize("time", range(2))
def test_store_is_fresh(shop, time):
    assert [charge(1), charge(1)] == [1, 1]

def test_clock(shop, once_clock):
    charge(1)
    once_clock.advance("1h")
    assert charge(1) == 2

def test_disabled(once_disabled):
    calls.clear()
    assert [charge(1), charge(1)] == [1, 2]
"""


def test_the_plugin_is_found_by_pytest_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(USERS_TESTS, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:frontrun", "-p", "no:cacheprovider", "--noconftest"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
