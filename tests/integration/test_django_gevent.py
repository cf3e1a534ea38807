"""Django under gunicorn's gevent workers: leases are renewed, and duplicates run once."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.django_processes import EVERYTHING, check_once, migrated_project
from tests.integration.django_servers import Server, log_in, serving

DUPLICATES = 20
CREATED = 201
LEASE, BLOCKED_SECONDS = "6s", 15
"""The view blocks all greenlets of its process for longer than two leases."""

PATH = f"/blocks?seconds={BLOCKED_SECONDS}"
ORDERS = "SELECT count(*) FROM shop_order"
PENDING = "SELECT count(*) FROM onceward_keys WHERE state = 'PENDING'"


@pytest.mark.finding("N7", "N13")
@pytest.mark.fault("F33")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgres"] if os.environ.get(EVERYTHING) else ["postgres"])
def test_duplicates_run_once_while_a_view_blocks_all_greenlets(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with migrated_project(database, tmp_path, request) as project:
        session = log_in(project)
        with (
            ThreadPoolExecutor(DUPLICATES + 1) as pool,  # its requests end with the servers
            serving(project, tmp_path / "blocked", "-k", "gevent", SHOP_LEASE=LEASE) as blocked,
            serving(project, tmp_path / "other", "-k", "gevent", SHOP_LEASE=LEASE) as other,
        ):

            def deliver(server: Server) -> Future[tuple[int, object]]:
                return pool.submit(server.post, PATH, session, "gevent", reference="gevent")

            sent = [deliver(blocked)]
            while project.sql(PENDING) == [(0,)]:
                assert not sent[0].done(), sent[0].result()
            sent += [deliver(server) for server in (blocked, other) for _ in range(DUPLICATES // 2)]
            while not all(one.done() for one in sent):
                assert project.sql(ORDERS)[0][0] <= 1, blocked.log.read_text() + other.log.read_text()
                time.sleep(0.2)
            responses = [one.result() for one in sent]
        assert {status for status, _ in responses} == {CREATED}, blocked.log.read_text() + other.log.read_text()
        assert len({str(body) for _, body in responses}) == 1
        check_once(project, "gevent")
