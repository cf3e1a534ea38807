"""examples/learning, fleet and documents as services: health, readiness, metrics, and a stop under load."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from standardwebhooks import Webhook as Signer

from tests.cli.calls import until
from tests.clients import TOO_LONG
from tests.services.running import ROOT, started, wait_until_ready

pytestmark = [pytest.mark.finding("N56")]

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
Send = Callable[[httpx.Client, int], httpx.Response]


def statement(client: httpx.Client, number: int) -> httpx.Response:
    id = str(UUID(int=number))
    body = {
        "id": id,
        "actor": {"mbox": f"mailto:{number}@example.com"},
        "verb": {"id": "http://adlnet.gov/expapi/verbs/completed"},
        "object": {"id": "http://example.com/course"},
    }
    headers = {"X-Experience-API-Version": "1.0.3"}
    auth = ("learner", "secret")
    return client.put("/xAPI/statements", params={"statementId": id}, json=body, headers=headers, auth=auth)


def event(client: httpx.Client, number: int) -> httpx.Response:
    data = base64.b64encode(json.dumps({"service": f"s{number}", "env": "prod", "status": "ok"}).encode()).decode()
    envelope = {
        "message": {"data": data, "messageId": f"m{number}", "publishTime": "2026-01-01T00:00:00Z"},
        "subscription": "projects/p/subscriptions/s",
    }
    return client.post("/pubsub/push", json=envelope)


def announcement(client: httpx.Client, number: int) -> httpx.Response:
    data, now = json.dumps({"name": "absent.pdf"}), datetime.now(UTC)
    signature = Signer(SECRET).sign(f"event-{number}", now, data)
    headers = {"webhook-id": f"event-{number}", "webhook-timestamp": str(int(now.timestamp()))}
    return client.post("/", content=data, headers={**headers, "webhook-signature": signature})


SERVICES: dict[str, tuple[Send, set[int]]] = {
    "learning": (statement, {204}),
    "fleet": (event, {200}),
    "documents": (announcement, {503}),  # the file is not here yet: the sender tries again
}


def command_of(system: str, folder: Path) -> list[str]:
    store = f"sqlite:///{folder}/records.db"
    settings = {
        "learning": ["serve", "--folder", str(folder)],
        "fleet": ["serve", "--store", store],
        "documents": ["serve", str(folder), "--store", store],
    }
    return [f"examples.{system}", *settings[system]]


@pytest.mark.parametrize("system", SERVICES)
def test_a_service_is_ready_answers_and_stops_under_load(system: str, tmp_path: Path) -> None:
    send, expected = SERVICES[system]
    numbers, stopping = count(1), threading.Event()
    answered: list[int] = []

    with started(tmp_path, *command_of(system, tmp_path), PORT="0", WEBHOOK_SECRET=SECRET) as service:
        wait_until_ready(service)
        assert httpx.get(f"{service.url}/healthz").text == "alive\n"
        assert "onceward_executed" in httpx.get(f"{service.url}/metrics").text

        def load() -> None:
            with httpx.Client(base_url=service.url, timeout=TOO_LONG) as client, suppress(httpx.TransportError):
                while not stopping.is_set():
                    answered.append(send(client, next(numbers)).status_code)

        with ThreadPoolExecutor(3) as pool:
            loads = [pool.submit(load) for _ in range(3)]
            until(lambda: len(answered) > 15)
            assert service.stop() == 0, service.log.read_text()
            stopping.set()
            for one in loads:
                one.result(TOO_LONG)
        assert set(answered) == expected, service.log.read_text()
        assert all("severity" in json.loads(line) for line in service.log.read_text().splitlines())


@pytest.mark.parametrize("system", ["learning", "fleet", "documents"])
def test_a_public_address_needs_authentication(system: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", *command_of(system, tmp_path), "--host", "0.0.0.0"]
    if system == "documents":
        command += ["--inbox", tmp_path.as_uri()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * TOO_LONG, check=False)
    assert done.returncode == 2
    assert "must be authenticated" in done.stderr
