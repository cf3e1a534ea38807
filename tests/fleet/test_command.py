"""The fleet as a program: `python -m examples.fleet serve`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.endpoints.helpers import wait_until
from tests.endpoints.test_oidc import AUDIENCE, EMAIL, KeyServer, token
from tests.fleet.served_fleet import (
    ROOT,
    beat,
    envelope,
)
from tests.servers.process import free_port


@pytest.mark.mission("E1")
def test_one_command_serves_everything_and_a_restart_loses_nothing(tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    reasons = []
    for _ in range(2):
        port = free_port()
        command = [sys.executable, "-m", "examples.fleet", "serve", "--port", str(port)]
        command += ["--store", f"sqlite:///{tmp_path / 'fleet.db'}", "--token", "secret"]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
            try:
                url = f"http://127.0.0.1:{port}"
                wait_until(partial(_answers, url), "the server answers")
                body = envelope(b'{"service": "billing", "env": "prod", "status": "ok"}', "m1")
                assert httpx.post(f"{url}/pubsub/push", content=body).status_code == 401
                reasons.append(httpx.post(f"{url}/pubsub/push?token=secret", content=body).json()["reason"])
            finally:
                server.kill()
    assert reasons == ["applied", "duplicate_message_noop"]


@pytest.mark.mission("E1")
def test_the_command_checks_signed_tokens(tmp_path: Path) -> None:
    keys, port = KeyServer(), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "examples.fleet", "serve", "--port", str(port)]
    command += ["--store", f"sqlite:///{tmp_path / 'fleet.db'}", "--oidc-audience", AUDIENCE, "--oidc-email", EMAIL]
    command += ["--oidc-keys", keys.url]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(partial(_answers, url), "the server answers")
            body = envelope(json.dumps(beat(5)).encode(), "m1")
            statuses = [
                httpx.post(f"{url}/pubsub/push", content=body, headers=headers).status_code
                for headers in ({}, {"authorization": f"Bearer {token(email='x@y.z')}"},
                                {"authorization": f"Bearer {token()}"})
            ]  # fmt: skip
        finally:
            server.kill()
            keys.stop()
    assert statuses == [401, 401, 200]


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
