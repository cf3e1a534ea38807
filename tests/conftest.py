"""How the tests run: which random examples Hypothesis draws, and which loop runs an `async def` test."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import os
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from onceward.cli.terminal_log import TerminalHandler
from onceward.engine.attempt import _current, current
from tests.clients import backend, client, clock, mode, sqlite_client
from tests.servers.pgbouncer import new_pgbouncer, pgbouncer
from tests.servers.postgres import own_postgres, postgres, postgres_template, schema

__all__ = [
    "backend",
    "client",
    "clock",
    "mode",
    "new_pgbouncer",
    "own_postgres",
    "pgbouncer",
    "postgres",
    "postgres_template",
    "schema",
    "sqlite_client",
]  # fixtures of every test, listed here so that pytest finds them

# The same examples on every machine: a red build can be repeated, a green one was not luck.
settings.register_profile("ci", max_examples=60, derandomize=True, database=None, deadline=None, print_blob=True)
# New examples each time, many of them; what fails is printed so that it can be replayed.
settings.register_profile(
    "soak", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE", "ci"))


def _on_a_fresh_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs), debug=False)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Give each `async def` test its own event loop; under `@given`, each example."""
    given = getattr(pyfuncitem.obj, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = _on_a_fresh_loop(given.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _on_a_fresh_loop(pyfuncitem.obj)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """If a test on PostgreSQL fails, show what the server has logged."""
    report = yield
    server = getattr(item, "funcargs", {}).get("postgres")
    if report.failed and server is not None:
        report.sections.append(("the end of PostgreSQL's log", server.end_of_log()))
    return report


def pytest_collection_finish() -> None:
    """Freeze the collected tests: they stay to the end, so the garbage collector need not scan them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logging_stays_as_it_was() -> Iterator[None]:
    """Undo changes of logging by commands and frameworks. Outside of tests, such changes end with their process."""
    root = logging.getLogger()
    level, handlers = root.level, tuple(root.handlers)
    yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if one not in handlers]:
        if not type(handler).__module__.startswith("_pytest"):  # pytest removes its own
            root.removeHandler(handler)
    for name in ("onceward", "onceward.raised"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logger = logging.getLogger("onceward")
    for handler in [one for one in logger.handlers if isinstance(one, TerminalHandler)]:
        logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def _no_claim_is_left_behind() -> Iterator[None]:
    """Check that a finished call, however it ended, does not stay the current claim of its thread."""
    yield
    left = current()
    if left is not None:
        _current.set(None)  # so that the next test is not affected
    assert left is None, f"{left.key.text} is still the current claim"
