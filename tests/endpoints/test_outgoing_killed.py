"""A paid call whose caller is killed while it waits for the answer: over real HTTP, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.clients import TOO_LONG
from tests.endpoints.helpers import wait_until, wsgi_served

ROOT = Path(__file__).resolve().parents[2]

WORKER = {
    "blocking": """
import sys, httpx
from onceward import Once
from onceward.http.client_keys import IdempotencyKeys

with Once(f"sqlite:///{sys.argv[2]}", lease="1s") as once, httpx.Client(auth=IdempotencyKeys(), timeout=600) as http:

    @once(key="charge:{order}")
    def charge(order: int) -> str:
        return http.post(sys.argv[1], json={"order": order}).text

    print(charge(7))
""",
    "async": """
import asyncio, sys, httpx
from onceward import AsyncOnce
from onceward.http.client_keys import IdempotencyKeys

async def main():
    async with AsyncOnce(f"sqlite:///{sys.argv[2]}", lease="1s") as once:
        async with httpx.AsyncClient(auth=IdempotencyKeys(), timeout=600) as http:

            @once(key="charge:{order}")
            async def charge(order: int) -> str:
                return (await http.post(sys.argv[1], json={"order": order})).text

            print(await charge(7))

asyncio.run(main())
""",
}


class Bank:
    """Charges once per key, and lets the first caller wait for its answer."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.charges: dict[str, str] = {}
        self.closing = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        order = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))["order"]
        key = environ["HTTP_IDEMPOTENCY_KEY"]
        first = not self.keys
        receipt = self.charges.setdefault(key, f"receipt {len(self.charges) + 1} for {order}")
        self.keys.append(key)
        if first:
            self.closing.wait(TOO_LONG)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [receipt.encode()]


@pytest.mark.mission("C8")
@pytest.mark.fault("F30")
@pytest.mark.parametrize("mode", list(WORKER))
def test_a_caller_killed_behind_the_charge_leads_to_no_second_one(tmp_path: Path, mode: str) -> None:
    bank = Bank()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with wsgi_served(bank) as url:
        command = [sys.executable, "-c", WORKER[mode], url, str(tmp_path / "once.db")]
        worker = subprocess.Popen(command, env=environment)
        try:
            wait_until(lambda: bank.keys, "the charge was made")
        finally:
            worker.kill()
            worker.wait(TOO_LONG)
        for _ in range(2):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
            assert (run.returncode, run.stdout) == (0, "receipt 1 for 7\n"), run.stderr
        bank.closing.set()
    assert len(bank.keys) == 2, "the third call is a replay and sends no request"
    assert len(bank.charges) == 1
