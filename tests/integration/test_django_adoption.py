"""A project in production adopts Onceward without downtime: migrate, observe, enforce. Duplicates arrive all the time.

Processes of the old version (without Onceward) and of the new one serve side by side, on the same database.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

from tests.integration.django_processes import EVERYTHING, Project, check_once, empty_project
from tests.integration.django_servers import PATIENCE, Server, log_in, serving

OLD = "tests.django_project.old_settings"
NEW = "tests.django_project.settings"
CREATED = 201
CLIENTS = 2
ORDERS = 5
"""At least so many are placed in each phase."""

PAUSE = 0.05
"""Seconds between two orders of a client, to leave time for the servers that start."""

Phase = tuple[str, list[Server]]


class Traffic:
    """Clients that send each order twice at the same time, to different servers if there are several."""

    def __init__(self, session: str, phase: str, servers: list[Server]) -> None:
        self.session = session
        self.responses: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self._phase: Phase = (phase, servers)
        self._seen: dict[int, Phase] = {}
        self._numbers = count()
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(3 * CLIENTS)

    def __enter__(self) -> Self:
        self._clients = [self._pool.submit(self._send, number) for number in range(CLIENTS)]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopped.set()
        if kind is None:
            self.stop()
        self._pool.shutdown()

    def stop(self) -> None:
        """Wait for the responses of the requests that are running. Raise what a client has raised."""
        self._stopped.set()
        for client in self._clients:
            client.result()

    def _send(self, client: int) -> None:
        while not self._stopped.is_set():
            self._seen[client] = phase, servers = self._phase
            reference = f"{phase}-{next(self._numbers)}-"
            sent = [
                self._pool.submit(one.post, "/adopted", self.session, reference, reference=reference)
                for one in (servers[0], servers[-1])
            ]
            self.responses[reference] = [one.result() for one in sent]
            self._stopped.wait(PAUSE)

    def switch(self, phase: str, servers: list[Server]) -> None:
        """Send the next orders to these servers. Return when no request to the previous ones is running."""
        self._phase = (phase, servers)
        self._wait_until(lambda: all(self._seen.get(client) is self._phase for client in range(CLIENTS)))

    def wait(self) -> None:
        """Wait until some orders of this phase have been placed."""
        self._wait_until(lambda: len(self.references(self._phase[0])) >= ORDERS)

    def references(self, phase: str) -> list[str]:
        return [one for one in list(self.responses) if one.startswith(phase)]

    def _wait_until(self, wanted: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not wanted():
            assert time.monotonic() < deadline
            for client in self._clients:
                if client.done():
                    client.result()
            time.sleep(0.02)


@pytest.mark.finding("N7")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgres"] if os.environ.get(EVERYTHING) else ["postgres"])
def test_a_project_adopts_it_while_it_serves_requests(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with empty_project(database, tmp_path, request) as project:
        project.environment["DJANGO_SETTINGS_MODULE"] = OLD
        project.manage("migrate", "-v", "0")
        session = log_in(project)
        new = Project(project.database)
        new.environment |= {"DJANGO_SETTINGS_MODULE": NEW, "SHOP_LOG_LEVEL": "INFO"}
        threads = ("-k", "gthread", "--threads", "8")
        with (
            serving(project, tmp_path / "old", *threads) as old,
            Traffic(session, "before", [old]) as traffic,
        ):
            traffic.wait()
            new.manage("migrate", "-v", "0")  # while the old version serves
            with (
                serving(new, tmp_path / "observes", *threads, SHOP_MODE="observe") as observing,
                serving(new, tmp_path / "enforces", *threads) as enforcing,
            ):
                traffic.switch("observed", [old, observing])
                traffic.wait()
                traffic.switch("mixed", [observing, enforcing])
                old.stop()
                traffic.wait()
                observing.post("/adopted", session, "repeated-later", reference="repeated-later")
                for _ in range(2):  # nothing else guarantees that this server gets the second of two deliveries
                    observing.post("/adopted", session, "repeated-here", reference="repeated-here")
                traffic.switch("enforced", [enforcing])
                observing.stop()
                traffic.wait()
                enforcing.post("/adopted", session, "repeated-later", reference="repeated-later")
                traffic.stop()  # before its server
        check_responses(traffic)
        check_rows(project, traffic)
        check_once(project, "repeated-later")
        assert project.sql("SELECT count(*) FROM shop_order WHERE reference = 'repeated-here'") == [(2,)]
        assert "would_skip" in (tmp_path / "observes").read_text()


def check_responses(traffic: Traffic) -> None:
    """Every request succeeded. Only the new version has loaded Onceward."""
    for reference, sent in traffic.responses.items():
        assert [status for status, _ in sent] == [CREATED, CREATED], (reference, sent)
    for phase, loaded in (("before", {False}), ("observed", {False, True}), ("mixed", {True}), ("enforced", {True})):
        sent = [one for reference in traffic.references(phase) for one in traffic.responses[reference]]
        assert {body["onceward"] for _, body in sent} == loaded, phase


def check_rows(project: Project, traffic: Traffic) -> None:
    """Until it is enforced, every delivery runs, as before. Then each order is placed once, with one receipt."""
    rows = dict(project.sql("SELECT reference, count(*) FROM shop_order GROUP BY reference"))
    for phase, wanted in (("before", {2}), ("observed", {2}), ("mixed", {1, 2}), ("enforced", {1})):
        assert {rows[reference] for reference in traffic.references(phase)} <= wanted, phase
    for reference in traffic.references("enforced")[:ORDERS]:
        check_once(project, reference)
    for reference in traffic.references("enforced"):
        (_, first), (_, second) = traffic.responses[reference]
        assert first == second
