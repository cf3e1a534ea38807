"""The modes for a careful roll-out: observe counts and never skips, off does not use the store."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from onceward import AsyncOnce, ConfigurationError, Executed, Once, Replayed, StoreUnavailable, current_claim
from onceward.engine.rollout import Mode
from onceward.errors import StoreNotSetUp
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores import MemoryStore
from onceward.stores.postgres import PostgresStore
from tests.cli.calls import call
from tests.faulty import FaultyNetwork, FaultyStore
from tests.servers.postgres import URL, execute


class Calls:
    """Counts its calls."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def work(self, n: int = 0) -> int:
        self.made.append(n)
        return len(self.made)

    async def async_work(self, n: int = 0) -> int:
        return self.work(n)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.mark.finding("N22")
def test_observe_runs_every_call_and_counts_the_duplicates(calls: Calls) -> None:
    with Once(MemoryStore(), mode="observe") as once:
        count = once(key="{n}", name="count")(lambda n, text="": calls.work(n))
        assert [count(1), count(1), count(1, "other"), count(2)] == [1, 2, 3, 4]
        assert once.counts["would_skip"] == 2
        assert "skipped" not in once.counts
        assert "mismatch" not in once.counts
        entry = count.read(1)
        assert entry is not None
        assert entry.value == 1, "the first result is recorded, as it would be"
        once.mode = "enforce"
        assert [count(1), count(2)] == [1, 4]


@pytest.mark.finding("N22")
def test_observe_never_skips_in_batches_blocks_locks_and_transactions(tmp_path: Path, calls: Calls) -> None:
    file = tmp_path / "once.db"
    with Once(f"sqlite:///{file}", mode="observe") as once, Once(f"sqlite:///{file}") as other:
        assert [type(one) for one in once.map(calls.work, [1, 1, 2], key="{n}")] == [Executed] * 3
        for _ in range(2):
            with once.claim("block") as claim:
                calls.work()
                claim.complete("done")
            with other.lock("nightly"), once.lock("nightly"):  # the inner one would wait for ever
                calls.work()
        with closing(sqlite3.connect(file, isolation_level=None)) as own:
            for _ in range(2):
                own.execute("BEGIN IMMEDIATE")
                with once.within(own) as tx:
                    tx.run("joined", calls.work)
                own.execute("COMMIT")
        assert len(calls.made) == 9
        assert once.counts["would_skip"] == 5


@pytest.mark.finding("N22")
def test_observe_does_not_wait_for_another_worker(calls: Calls) -> None:
    with Once(MemoryStore(), mode="observe", wait="1h") as once, once.claim("a"):
        assert once.using().outcome("a", calls.work, 1).reason is not None
        assert calls.made == [1]


@pytest.mark.finding("N22")
@pytest.mark.parametrize("after_crash", ["rerun", "park"])
def test_observe_passes_the_exception_of_the_work_through(after_crash: Any) -> None:
    def broken() -> None:
        raise ValueError("its own")

    with Once(MemoryStore(), mode="observe", after_crash=after_crash, max_attempts=1) as once:
        for _ in range(3):
            with pytest.raises(ValueError, match="its own"):
                once.run("a", broken)


@pytest.mark.finding("N22")
@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_store_that_is_down_does_not_fail_a_call(mode: Mode, calls: Calls) -> None:
    url = "postgresql://nobody@127.0.0.1:1/shop"
    with Once(url, mode=mode, lease="1s") as once:
        assert once.run("a", calls.work) == 1
        assert once.counts["unprotected" if mode == "observe" else "switched_off"] == 1


@pytest.mark.finding("N22")
def test_observe_returns_the_value_although_the_store_fails_when_the_work_is_done(calls: Calls) -> None:
    network = FaultyNetwork()
    store = FaultyStore(MemoryStore(), network)

    def work() -> int:
        network.lose_requests("settle")
        return calls.work()

    with Once(store, mode="observe", lease="300ms") as once:
        assert once.run("a", work) == 1
        assert once.counts["unknown"] == 1
        network.heal()


@pytest.mark.finding("N22")
def test_off_uses_no_store_and_can_be_changed_at_run_time(calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "onceward")
    with Once(MemoryStore()) as once:
        work = once(key="{n}")(calls.work)
        assert [work(1), work(1)] == [1, 1]
        once.mode = "off"
        assert [work(1), work(1)] == [2, 3]
        with once.claim("1"):
            assert current_claim().token
        assert once.counts["switched_off"] == 3
        once.mode = "enforce"
        assert work(1) == 1
        assert [one.message for one in caplog.records] == [
            "mode_changed  [memory]: reason enforce → off",
            "mode_changed  [memory]: reason off → enforce",
        ]


@pytest.mark.finding("N22")
def test_the_environment_overrides_the_argument(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    monkeypatch.setenv("ONCEWARD_MODE", "off")
    with Once(MemoryStore(), mode="enforce") as once:
        assert (once.mode, once.using().mode, once.aio.mode) == ("off", "off", "off")
        assert [once.run("a", calls.work), once.run("a", calls.work)] == [1, 2]
    monkeypatch.setenv("ONCEWARD_MODE", "of")
    with pytest.raises(ConfigurationError, match=r"the mode cannot be 'of' \(from \$ONCEWARD_MODE\)"):
        Once(MemoryStore())


@pytest.mark.finding("N22")
def test_an_async_client_has_the_modes_too(calls: Calls) -> None:
    async def main() -> None:
        async with AsyncOnce(MemoryStore(), mode="observe") as once:
            assert [await once.run("a", calls.async_work), await once.run("a", calls.async_work)] == [1, 2]
            assert once.counts["would_skip"] == 1
            once.mode = "off"
            assert await once.run("a", calls.async_work) == 3
            once.mode = "enforce"
            assert isinstance(await once.outcome("a", calls.async_work), Replayed)

    asyncio.run(main())


@pytest.mark.finding("N22")
def test_the_counters_and_the_doctor_show_the_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'once.db'}"
    with Once(url, mode="observe", counters=True) as once:
        once.run("a", lambda: 1)
        once.run("a", lambda: 1)
    with Once(url) as once:
        totals = once.stats()
        assert totals.total("would_skip") == 1
    for mode, status in (("enforce", "ok"), ("observe", "note"), ("off", "attention")):
        monkeypatch.setenv("ONCEWARD_MODE", mode)
        line = call("doctor", "--store", url, "-o", "table").stdout.splitlines()[1]
        assert [one.strip(",") for one in line.split()[:3]] == ["mode", status, mode]


@pytest.mark.finding("N22")
def test_observe_answers_every_request_of_a_protected_route(calls: Calls) -> None:
    async def pay(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(calls.work()))

    once = Once(MemoryStore(), mode="observe")
    site = Starlette(routes=[Route("/pay", pay, methods=["POST"])])
    app = IdempotencyMiddleware(site, once, required=["/pay"], bare_keys=True, principal=lambda _: "a")

    async def main() -> list[str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            headers = {"Idempotency-Key": "k1"}
            return [(await client.post("/pay", headers=headers, content=body)).text for body in (b"1", b"1", b"2")]

    assert asyncio.run(main()) == ["1", "2", "3"]
    assert once.counts["would_skip"] == 2
    once.close()


# ── start-up and readiness ──


@pytest.mark.finding("N20")
def test_check_raises_without_tables_and_the_log_names_the_command(
    postgres: Any, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    execute(f'DROP SCHEMA "{schema}" CASCADE; CREATE SCHEMA "{schema}"')  # tests of one worker share its tables
    store = PostgresStore(os.environ[URL], schema=schema)
    with Once(store) as once:
        with pytest.raises(StoreNotSetUp, match="onceward migrate"):
            once.check(store_only=True)
        assert any("not_set_up" in one.message and "onceward migrate" in one.message for one in caplog.records)
        once.migrate()
        assert once.check(store_only=True) == []
        assert once.check() == []

    async def main() -> None:
        async with AsyncOnce(PostgresStore(os.environ[URL], schema=schema)) as once:
            assert await once.check(store_only=True) == []

    asyncio.run(main())


@pytest.mark.finding("N20")
def test_check_raises_if_the_store_does_not_answer() -> None:
    network = FaultyNetwork()
    store = FaultyStore(MemoryStore(), network)
    with Once(store) as once:
        assert once.check(store_only=True) == []
        network.lose_requests("read")
        with pytest.raises(StoreUnavailable):
            once.check(store_only=True)
        network.heal()
