"""Django under gunicorn's gevent workers: leases are renewed, and duplicates run once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.django_processes import EVERYTHING, check_once, migrated_project
from tests.integration.django_servers import log_in, serving

DUPLICATES = 20
CREATED = 201
LEASE, BLOCKED_SECONDS = "4s", 10
"""The view blocks all greenlets of its process for longer than two leases."""


@pytest.mark.finding("N7", "N13")
@pytest.mark.fault("F33")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgres"] if os.environ.get(EVERYTHING) else ["postgres"])
def test_duplicates_run_once_while_a_view_blocks_all_greenlets(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with migrated_project(database, tmp_path, request) as project:
        session = log_in(project)
        options = ("-k", "gevent", "-w", "2")
        with (
            serving(project, tmp_path / "log", *options, SHOP_LEASE=LEASE) as server,
            ThreadPoolExecutor(DUPLICATES) as pool,
        ):

            def deliver(_: int) -> tuple[int, object]:
                return server.post(f"/blocks?seconds={BLOCKED_SECONDS}", session, "gevent", reference="gevent")

            responses = list(pool.map(deliver, range(DUPLICATES)))
        assert [status for status, _ in responses] == [CREATED] * DUPLICATES, server.log.read_text()
        assert len({str(body) for _, body in responses}) == 1
        check_once(project, "gevent")
