"""A worker is killed at every step of a document: the next worker finishes it, and nothing exists twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "once.db")
    server: Postgres = request.getfixturevalue("postgres")
    return f"{server.url} {request.getfixturevalue('schema')}"


def killed_everywhere(store: str, folder: Path, scene: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.documents.victims", store, str(folder), scene]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.mission("A2", "A3", "A6", "A7")
@pytest.mark.fault("F30", "F74")
@pytest.mark.parametrize(
    ("store", "scene"),
    [("sqlite", "published"), ("sqlite", "refused by the warehouse"), ("postgres", "published")],
    indirect=["store"],
)
def test_killed_at_every_step_a_document_is_finished_by_the_next_delivery(
    store: str, tmp_path: Path, scene: str
) -> None:
    ends = killed_everywhere(store, tmp_path, scene)
    assert len(ends) > 25, "points"
    effects, status = (1, "COMPLETED") if scene == "published" else (0, "FAILED")
    for end in ends:
        assert (end["files"], end["rows"], end["status"]) == (effects, effects, status), end
        assert 2 <= end["asked"] <= 4, f"the models are asked again only if they were interrupted: {end}"
        assert (end["gcs_output_path"] is None) is (scene != "published"), end
    kept = [end["gcs_source_path"] for end in ends]
    assert any(name == "gs://in/{}.pdf".format(end["point"]) for name, end in zip(kept, ends, strict=True)), "annotated"
    assert sum(end["asked"] == 2 for end in ends) > len(ends) / 2, "the next worker reuses earlier answers"
