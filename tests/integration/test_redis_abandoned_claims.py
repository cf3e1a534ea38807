"""Claims that Redis grants after their caller has left are released, so that no key stays claimed without an owner."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Executed, Running, StoreUnavailable
from onceward.protocol.policy import Policy
from tests.clients import AsyncClient, Mode, SyncClient
from tests.integration.redis_backend import RedisBackend
from tests.integration.test_redis_faults import Work, private, work
from tests.moved_time import TOO_LONG
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

__all__ = ["private", "work"]  # fixtures, re-exported so that pytest finds them


class Alarm(Exception):
    """Raised by a handler of SIGALRM."""


@pytest.mark.rival(7)
@pytest.mark.fault("F52", "F53")
def test_a_claim_that_a_server_grants_after_its_caller_has_left_is_released(
    tmp_path: Path, private: RedisServer, mode: Mode, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paused server executes the requests when it resumes, long after its callers got an error."""
    monkeypatch.setattr(Policy, "call_timeout", 1.0)  # not 5 s, as with such a lease
    with Proxy("127.0.0.1", private.port) as proxy:
        backend = RedisBackend(tmp_path, private, proxy)
        settings: dict[str, Any] = {"lease": "1h", "on_running": "raise"}
        client = SyncClient(backend, **settings) if mode == "blocking" else AsyncClient(backend, **settings)
        try:
            client.run("warm", lambda: None)
            private.send(signal.SIGSTOP)
            with pytest.raises(StoreUnavailable):
                client.run("order 7", work)
            private.send(signal.SIGCONT)
            ends = time.monotonic() + TOO_LONG
            while isinstance(outcome := client.outcome("order 7", work), Running) and time.monotonic() < ends:
                time.sleep(0.02)
            assert (type(outcome), work.times) == (Executed, 1)
        finally:
            private.send(signal.SIGCONT)
            client.close()
            backend.close()


@pytest.mark.rival(7)
@pytest.mark.fault("F28", "F52")
async def test_a_task_that_is_cancelled_while_the_server_is_paused_leaves_no_key_claimed(
    private: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "call_timeout", 1.0)
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    async with AsyncOnce(private.url(), lease="1h", on_running="wait", wait="60s") as once:
        await once.run("warm", work)
        private.send(signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await once.run("order 7", work)
            assert time.monotonic() - began < 20, "a few tries only"
        finally:
            private.send(signal.SIGCONT)
        await asyncio.wait_for(once.run("order 7", work), TOO_LONG)
    assert done == ["work", "work"]
