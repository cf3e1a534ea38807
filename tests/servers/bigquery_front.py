"""A proxy in front of the emulator that follows BigQuery's documentation where the emulator does not.

* A job id is used once: a second job with that id gets a 409 immediately. (The emulator runs it again.)
* Of two transactions that update one table, one is aborted. (The emulator runs no concurrent transactions.)

It also loses answers on purpose, and counts the requests.
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.stand_in import StandIn

PATIENCE = 60.0  # seconds
JOBS = re.compile(r"/bigquery/v2/projects/[^/]+/jobs")
ONE_JOB = re.compile(r"/bigquery/v2/projects/[^/]+/(?:jobs|queries)/([^/?]+)")
UPDATED = re.compile(r"BEGIN TRANSACTION;\s*UPDATE (\S+)")
ABORTED = "Transaction is aborted due to concurrent update against table {}. Transaction ID: 1"


class Front(StandIn):
    """The client connects to `endpoint`."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.jobs: dict[str, threading.Event] = {}
        """By id: set when the job is done."""

        self.failed: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.repeated: list[str] = []
        """Ids of jobs that were sent again."""

        self.expiring: set[str] = set()
        """Tables that BigQuery would delete by itself. (The emulator keeps them.)"""

        self.aborted = 0
        self.saw_abort = threading.Event()
        self.lost = 0
        self.reached = threading.Event()
        """Set when the transaction that is held back has begun."""

        self._released = threading.Event()
        self._hold = False
        self._lose: list[str] = []
        self._abort = 0
        self._writing: set[str] = set()
        self._turn = threading.Lock()
        front = self

        class Handler(_Handler):
            def __init__(self, *args: Any) -> None:
                self.front = front
                super().__init__(*args)

        super().__init__(Handler)
        self.endpoint = self.url

    def lose(self, *kinds: str) -> None:
        """Lose the answers to the next jobs whose ids contain these words, in this order, after the jobs are done."""
        self._lose += kinds

    def abort(self, times: int) -> None:
        """Abort the next transactions, as if others had been faster."""
        self._abort += times

    def hold(self) -> None:
        """Hold the next transaction back, once it has begun, until `release`."""
        self._hold = True

    def release(self) -> None:
        self._released.set()

    def wait_if_held(self, script: str) -> None:
        if UPDATED.search(script) is None:
            return
        with self._turn:
            is_held, self._hold = self._hold, False
        if is_held:
            self.reached.set()
            self._released.wait(PATIENCE)

    def is_lost(self, job: str) -> bool:
        with self._turn:
            if self._lose and self._lose[0] in job:
                self._lose.pop(0)
                self.lost += 1
                return True
        return False

    def begin(self, job: str, script: str) -> str:
        """Register a job. Return `new`, `known` or `aborted`."""
        updated = UPDATED.search(script)
        with self._turn:
            self.asked["jobs"] += 1
            if job in self.jobs:
                self.repeated.append(job)
                return "known"
            self.jobs[job] = threading.Event()
            if updated is None:
                return "new"
            if self._abort or updated[1] in self._writing:
                self._abort = max(0, self._abort - 1)
                self.aborted += 1
                self.saw_abort.set()
                self.jobs[job].set()
                return "aborted"
            self._writing.add(updated[1])
            return "new"

    def end(self, job: str, script: str) -> None:
        updated = UPDATED.search(script)
        with self._turn:
            if updated is not None:
                self._writing.discard(updated[1])
            self.jobs[job].set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: Front

    def do_POST(self) -> None:
        body = self._body()
        path = self.path.partition("?")[0]
        if not JOBS.fullmatch(path):
            self.front.asked["jobs"] += path.endswith("/queries")
            if path.endswith("/tables") and (made := json.loads(body)).get("expirationTime"):
                self.front.expiring.add(made["tableReference"]["tableId"])
            self._forward(body)
            return
        asked = json.loads(body)
        job, script = asked["jobReference"]["jobId"], asked["configuration"]["query"]["query"]
        verdict = self.front.begin(job, script)
        if verdict == "known":
            status, answer = 409, _already_there(job)
        elif verdict == "aborted":
            self.front.failed[job] = _failed(asked)
            status, answer = 200, json.dumps(self.front.failed[job]).encode()
        else:
            try:
                self.front.wait_if_held(script)
                status, answer = self._behind(body)
            finally:
                self.front.end(job, script)
        if self.front.is_lost(job):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self._send(status, answer)

    def do_GET(self) -> None:
        one = ONE_JOB.match(self.path)
        if one is not None and one[1] in self.front.jobs:
            self.front.jobs[one[1]].wait(PATIENCE)
            if one[1] in self.front.failed:
                self._send(200, json.dumps(self.front.failed[one[1]]).encode())
                return
        self._forward(b"")

    def do_DELETE(self) -> None:
        self._forward(b"")

    def _forward(self, body: bytes) -> None:
        self.front.asked[self.command] += 1
        self._send(*self._behind(body))

    def _behind(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.front.behind, timeout=PATIENCE)
        try:
            connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _send(self, status: int, answer: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing: the tests report what went wrong."""


def _already_there(job: str) -> bytes:
    message = f"Already Exists: Job {job}"
    error = {"code": 409, "message": message, "errors": [{"reason": "duplicate", "message": message}]}
    return json.dumps({"error": error}).encode()


def _failed(asked: dict[str, Any]) -> dict[str, Any]:
    message = ABORTED.format("t")
    error = {"reason": "invalidQuery", "message": message}
    return asked | {
        "kind": "bigquery#job",
        "status": {"state": "DONE", "errorResult": error, "errors": [error]},
        "statistics": {"query": {"statementType": "SCRIPT"}},
    }
