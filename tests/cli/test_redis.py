"""The command on a Redis store: the same words, the same answers, and an audit trail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.cli.codes import Exit
from tests.cli.calls import as_json, call, line
from tests.cli.three_records import standings, test_records_are_listed_shown_explained_and_counted, three_records
from tests.servers.redis import shared

__all__ = ["test_records_are_listed_shown_explained_and_counted"]  # told here so that pytest finds it


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with three_records(f"{shared().url()}&prefix={tmp_path.name}", tmp_path, monkeypatch) as url:
        yield url


def test_the_doctor_looks_at_the_server_too(store: str) -> None:
    result = call("doctor")
    said = {one["name"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)}
    assert result.exit_code == Exit.ATTENTION
    assert said["eviction"] == ("ok", "noeviction")
    assert said["persistence"] == ("note", "keeps nothing; see appendonly and appendfsync")
    assert said["lapsed"][0] == said["parked"][0] == "attention"


def test_there_is_nothing_to_migrate(store: str) -> None:
    assert "There is nothing to do." in call("migrate", "-o", "table").stdout
    assert as_json("migrate")["statements"] == []


def test_what_is_done_by_hand_is_done_and_signed(store: str) -> None:
    assert call("release", "silent", "--yes", "--why", "its host is gone").exit_code == 0
    assert call("resolve", "parked", "--applied", "--yes", "--why", "the bank says so").exit_code == 0
    assert call("forget", "done", "--yes", "--why", "by mistake").exit_code == 0
    assert call("purge", "--yes").exit_code == 0
    assert standings(as_json("ls")) == {"parked": "COMPLETED", "silent": "FAILED"}, "what is free is not listed"
    trail = as_json("audit")
    assert [(one["verb"], one["key"], one["why"]) for one in trail] == [
        ("forget", "done", "by mistake"),
        ("resolve", "parked", "the bank says so"),
        ("release", "silent", "its host is gone"),
    ]


def test_a_server_that_is_not_there_is_one_line_and_a_code(store: str) -> None:
    result = call("--store", "redis://:secret@127.0.0.1:1/0", "ls")
    assert result.exit_code == Exit.DOWN
    assert "cannot be reached" in line(result)
    assert "secret" not in result.output
