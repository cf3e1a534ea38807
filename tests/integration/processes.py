"""Other callers, and forked children of a test's own process."""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from onceward.protocol.ports import Store
from tests.clients import Backend

INTERRUPTS = [KeyboardInterrupt, SystemExit, GeneratorExit]


def work() -> str:
    return "done"


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call it as another caller would: outside the claim that is current here."""
    return contextvars.Context().run(call)


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


def in_a_forked_child(check: Callable[[], None]) -> None:
    """Run the check in a fork of this process; an exception there fails the test here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about forking a process with threads
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the child printed its error above"
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")
