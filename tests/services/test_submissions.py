"""examples/submissions as a service: HTTP and queues, health, metrics, and a stop under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest

from examples.submissions.bureau import Bureau, bureau
from examples.submissions.intake import PATH
from tests.cli.calls import until
from tests.clients import TOO_LONG
from tests.integration.test_submissions_example import submission
from tests.queues.brokers import Broker, OnNats, OnRabbit, OnRedisStreams
from tests.queues.cloud import OnSQS
from tests.servers import nats, rabbitmq
from tests.servers.ministack import Ministack
from tests.servers.redis import RedisServer, shared
from tests.services.running import ROOT, Service, started, wait_until_ready

TOKEN = {"Authorization": "Bearer secret-of-north"}
BROKERS = {"BROKERS": "secret-of-north=north"}


@pytest.fixture
def remote() -> Iterator[Bureau]:
    with bureau(calm=True) as server:
        yield server


@pytest.fixture
def service(tmp_path: Path, remote: Bureau) -> Iterator[Service]:
    store = f"sqlite:///{tmp_path}/submissions.db"
    with started(
        tmp_path, "examples.submissions", "serve", "--store", store, "--bureau", remote.url, PORT="0", **BROKERS
    ) as running:
        wait_until_ready(running)
        yield running


def rows(folder: Path) -> int:
    with sqlite3.connect(folder / "submissions.db") as connection:
        return int(connection.execute("SELECT count(*) FROM quotes").fetchone()[0])


@pytest.mark.finding("N54", "N56")
def test_a_submission_is_priced_once_by_the_configured_bureau(service: Service, remote: Bureau, tmp_path: Path) -> None:
    with httpx.Client(base_url=service.url, headers=TOKEN, timeout=TOO_LONG) as client:
        answers = [client.post(PATH, content=msgspec.json.encode(submission(n))).json() for n in (1, 2)]
        assert [one["replay"] for one in answers] == [False, True]
        assert client.get("/healthz").status_code == 200
        assert 'submission_processed_total{replay="true",scope="insurer/submission"} 1.0' in client.get("/metrics").text
    assert (len(remote.ledger), rows(tmp_path)) == (1, 1)


@pytest.mark.finding("N34")
def test_every_route_needs_the_token_of_a_broker(service: Service, remote: Bureau) -> None:
    body = msgspec.json.encode(submission())
    for headers in ({}, {"Authorization": "Bearer x"}, {"Idempotency-Key": "k"}, {"Authorization": "secret-of-north"}):
        assert httpx.post(service.url + PATH, content=body, headers=headers).status_code == 401
    assert remote.ledger == []


@pytest.mark.finding("N56", "N69")
def test_sigterm_under_load_loses_nothing_and_locks_nothing(service: Service, remote: Bureau, tmp_path: Path) -> None:
    numbers, stopping = count(1), threading.Event()
    accepted: list[int] = []

    def send() -> None:
        with httpx.Client(base_url=service.url, headers=TOKEN, timeout=TOO_LONG) as client:
            while not stopping.is_set():
                number = next(numbers)
                content = msgspec.json.encode(submission(company=f"Company {number}"))
                try:
                    if client.post(PATH, content=content).status_code == httpx.codes.OK:
                        accepted.append(number)
                except httpx.TransportError:
                    return

    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(send) for _ in range(4)]
        until(lambda: len(accepted) > 20)
        assert service.stop() == 0, service.log.read_text()
        stopping.set()
        for sender in senders:
            sender.result(TOO_LONG)
    assert len(accepted) <= rows(tmp_path) == len(remote.ledger)
    with sqlite3.connect(tmp_path / "submissions.db") as connection:
        states = {state for (state,) in connection.execute("SELECT state FROM onceward_keys")}
    assert states <= {"COMPLETED", "FREE"}
    assert all("severity" in json.loads(line) for line in service.log.read_text().splitlines())


@pytest.mark.finding("N54")
@pytest.mark.parametrize("kind", ["rabbitmq", "nats", "redis"])
def test_submissions_are_consumed_from_a_broker(kind: str, tmp_path: Path) -> None:
    broker: Broker
    if kind == "rabbitmq":
        broker = OnRabbit(rabbitmq.shared())
        options = f"queue={broker.name}"
    elif kind == "nats":
        broker = OnNats(nats.shared())
        options = f"stream={broker.name}&durable=desk&subject={broker.name}.new"
    else:
        broker = OnRedisStreams(shared())
        options = f"stream={broker.name}&group=desk"
    check_consumed(broker, f"{broker.url}?{options}", tmp_path)


@pytest.mark.finding("N54")
def test_submissions_are_consumed_from_sqs(tmp_path: Path) -> None:
    server = Ministack().begin()
    try:
        broker = OnSQS(server.url)
        account = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "eu-central-1"}
        url = f"sqs+{server.url}/000000000000/{broker.name}"
        check_consumed(broker, url, tmp_path, AWS_ENDPOINT_URL_SQS=server.url, **account)
    finally:
        server.end()


def check_consumed(broker: Broker | OnSQS, url: str, tmp_path: Path, **environment: str) -> None:
    """Send one submission three times. The service prices it once, and stops when it is told to."""
    asyncio.run(broker.make())
    delivered = [(msgspec.json.encode(submission(number)), f"id-{number}") for number in (1, 2, 3)]
    asyncio.run(broker.send(delivered))
    with bureau(calm=True) as remote:
        command = [
            sys.executable, "-m", "examples.submissions", "consume", "--bureau", remote.url,
            "--store", f"sqlite:///{tmp_path}/submissions.db", "--queue", url,
        ]  # fmt: skip
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            until(lambda: (tmp_path / "submissions.db").exists() and _settled(tmp_path), TOO_LONG)
            process.send_signal(signal.SIGTERM)
            assert process.wait(2 * TOO_LONG) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait(TOO_LONG)
        assert (len(remote.ledger), rows(tmp_path)) == (1, 1)


def _settled(folder: Path) -> bool:
    try:
        return rows(folder) == 1
    except sqlite3.OperationalError:  # the table is not there yet
        return False


@pytest.mark.finding("N54")
def test_it_refuses_to_start_on_a_redis_that_loses_data() -> None:
    server = RedisServer().begin()  # without persistence
    try:
        done = subprocess.run(
            [sys.executable, "-m", "examples.submissions", "serve", "--port", "0"],
            cwd=ROOT,
            env={**os.environ, **BROKERS, "STORE": f"redis://127.0.0.1:{server.port}/0"},
            capture_output=True, text=True, timeout=4 * TOO_LONG, check=False,
        )  # fmt: skip
    finally:
        server.end()
    assert done.returncode == 1
    assert "appendonly" in done.stderr
