"""Views, tasks and commands of a Django project that are killed (SIGKILL) and delivered again, counted by plain SQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.integration.django_processes import EVERYTHING, Project, check_once, migrated_project

KINDS = ("view", "task", "command")
STAGES = ("started", "written", "committed")
DUPLICATES = 20
DELIVER = ("-m", "tests.django_project.deliver")


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    with migrated_project(request.param, tmp_path, request) as project:
        yield project


def kill_and_deliver(project: Project, kind: str, stage: str) -> None:
    """Kill a process that delivers an order, at this stage. Deliver it again: one row, and one receipt."""
    reference = kill(project, kind, stage)
    orders = f"SELECT count(*) FROM shop_order WHERE reference = '{reference}'"
    assert project.sql(orders) == [(1 if stage == "committed" else 0,)]
    project.run(*DELIVER, kind, reference)
    check_once(project, reference)


def kill(project: Project, kind: str, stage: str) -> str:
    """Kill a process at this stage, and return the reference of its order."""
    reference = f"{kind}-{stage}"
    killed = Project(project.database)
    killed.environment |= {"SHOP_STOP_AT": stage, "SHOP_LEASE": "1s"}
    process = killed.start(*DELIVER, kind, reference)
    assert process.stdout is not None
    assert process.stdout.readline() == f"reached {stage}\n", process.communicate()
    process.kill()
    process.communicate()
    return reference


@pytest.mark.finding("N3", "N4", "N7", "N30")
@pytest.mark.fault("F31")
@pytest.mark.timeout(3600 if os.environ.get(EVERYTHING) else 600)
def test_one_row_and_one_receipt_whatever_happens(project: Project, request: pytest.FixtureRequest) -> None:
    chosen = [("view", "written" if "sqlite" in request.node.name else "committed")]
    if os.environ.get(EVERYTHING):
        chosen = list(product(KINDS, STAGES))
    for kind, stage in chosen:
        kill_and_deliver(project, kind, stage)
    deliver_concurrently(project)
    deliver_in_other_ways(project)
    if "sqlite" in request.node.name or os.environ.get(EVERYTHING):
        recover_by_command(project)


def deliver_concurrently(project: Project) -> None:
    """Deliver each kind of order twenty times at the same time: in threads, and the command in processes as well."""
    project.run(*DELIVER, "all", "storm", str(DUPLICATES))
    for kind in KINDS:
        check_once(project, f"{kind}-storm")
    if os.environ.get(EVERYTHING):
        command = ("-m", "tests.django_project.manage", "place_order", "on-many-machines")
        for process in [project.start(*command) for _ in range(DUPLICATES)]:
            printed = process.communicate(timeout=500)
            assert process.returncode == 0, printed
        check_once(project, "on-many-machines")


def deliver_in_other_ways(project: Project) -> None:
    """Deliver after a rollback of `atomic()` (the work is not lost), in an event loop, and after a fork."""
    project.run(*DELIVER, "others", "-")
    for reference in ("rolled-back", "async", "awaited", "forked"):
        check_once(project, reference)


def recover_by_command(project: Project) -> None:
    """Kill a process that has stored its input, and finish its work with `manage.py onceward recover`."""
    reference = kill(project, "import", "started")
    orders = f"SELECT count(*) FROM shop_order WHERE reference = '{reference}'"
    while project.sql(orders) == [(0,)]:  # until its lease has expired
        project.manage("onceward", "recover", "--once", check=False)
    check_once(project, reference)
    assert f"import:{reference}" in project.manage("onceward", "ls")
