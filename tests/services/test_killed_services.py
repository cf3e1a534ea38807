"""Each of the five systems as a service that is killed under load: nothing is lost, and everything is done once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.cli.calls import until
from tests.clients import TOO_LONG
from tests.servers.postgres import new_database
from tests.services.killed_systems import SYSTEMS, System
from tests.services.running import Service, started, wait_until_ready

SOAKING = os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE") == "soak"
SENDERS = 3
ANSWERED = 200 if SOAKING else 10
"""How many deliveries are answered before the service is killed."""

CASES = [
    ("submissions", "postgres"),
    ("fleet", "postgres"),
    ("documents", "sqlite"),
    ("learning", "sqlite"),
    ("outreach", "postgres"),
]
"""Each system on one store; `make soak` has both."""


def send_until_killed(service: Service, system: System) -> tuple[int, int]:
    """Send deliveries in several threads and kill the service. Return how many were sent and how many accepted."""
    numbers, answered = count(), list[int]()

    def load() -> None:
        with httpx.Client(base_url=service.url, timeout=TOO_LONG) as client, suppress(httpx.TransportError):
            while True:
                answered.append(system.send(client, next(numbers)).status_code)

    with ThreadPoolExecutor(SENDERS) as pool:
        senders = [pool.submit(load) for _ in range(SENDERS)]
        until(lambda: len(answered) >= ANSWERED)
        service.process.kill()
        for one in senders:
            one.result(TOO_LONG)
    assert all(status < 300 for status in answered), (answered, service.log.read_text())
    return next(numbers), len(answered)


def send_again(client: httpx.Client, system: System, number: int) -> Callable[[], bool]:
    """Return a call that sends a delivery and returns whether it was accepted: the lease may not have expired yet."""
    return lambda: system.send(client, number).status_code < 300


@pytest.mark.finding("N56")
@pytest.mark.fault("F30")
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in SYSTEMS for kind in ("sqlite", "postgres")] if SOAKING else CASES
)
def test_a_service_that_is_killed_under_load_loses_nothing_and_does_everything_once(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = f"sqlite:///{tmp_path}/records.db"
    if kind == "postgres":
        store = new_database(request.getfixturevalue("postgres"), f"killed_{name}_{os.getpid()}")
    with SYSTEMS[name](tmp_path, store) as system:
        command = [f"examples.{name}", *system.command]
        with started(tmp_path, *command, PORT="0", **system.environment) as service:
            wait_until_ready(service)
            sent, accepted = send_until_killed(service, system)
        with started(tmp_path, *command, PORT="0", **system.environment) as service:
            wait_until_ready(service)
            assert accepted <= min(system.effects(service)) <= max(system.effects(service)) <= sent
            with httpx.Client(base_url=service.url, timeout=TOO_LONG) as client:
                for _ in range(2):
                    for number in range(sent):
                        until(send_again(client, system, number), TOO_LONG)
                assert set(system.effects(service)) == {sent}
                assert system.metric in client.get("/metrics").text
            assert service.stop() == 0, service.log.read_text()
            assert all("severity" in json.loads(line) for line in service.log.read_text().splitlines())
