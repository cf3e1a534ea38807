"""Serve the Django project in tests/django_project with gunicorn, and send requests to it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.django_processes import REPOSITORY, Project
from tests.servers.process import free_port

PATIENCE = 300.0
"""Seconds for a server to start and to respond, on a busy machine."""

CONFLICT = 409
LOG_IN = """
import django; django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.create_user("ann"))
print(client.cookies["sessionid"].value)
"""


class Server:
    """A gunicorn with the project."""

    def __init__(self, project: Project, log: Path, *options: str, **variables: str) -> None:
        self.port, self.log = free_port(), log
        command = ["-m", "gunicorn", "tests.django_project.wsgi", "-b", f"127.0.0.1:{self.port}", "--timeout", "600"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command, *options],
                env={**project.environment, **variables},
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
            )

    def wait_until_it_responds(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            try:
                self._request("GET", "/nothing", "", {})
            except OSError:
                time.sleep(0.05)
            else:
                return

    def post(self, path: str, session: str, key: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Send an order with this key. While another request with the key is running, send it again."""
        headers = {"Cookie": f"sessionid={session}", "Content-Type": "application/json", "Idempotency-Key": key}
        headers["Host"] = "shop.example"  # as behind a load balancer: the same request for every server
        while True:
            status, content = self._request("POST", path, json.dumps(body), headers)
            if status != CONFLICT:
                return status, json.loads(content)
            time.sleep(0.05)

    def _request(self, method: str, path: str, body: str, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def stop(self) -> None:
        """Let running requests finish, and end the server."""
        self._process.terminate()
        self._process.wait(PATIENCE)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(project: Project, log: Path, *options: str, **variables: str) -> Iterator[Server]:
    """Yield a server that responds."""
    server = Server(project, log, *options, **variables)
    try:
        server.wait_until_it_responds()
        yield server
    finally:
        server.end()


def log_in(project: Project) -> str:
    """Return the session of a new user."""
    return project.run("-c", LOG_IN).split()[-1]
