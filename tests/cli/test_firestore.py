"""The command on Firestore, with other names for the documents' fields: the same options, the same output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.cli.exit_codes import Exit
from tests.cli.calls import as_json, call, line
from tests.cli.three_records import standings, test_records_are_listed_shown_explained_and_counted, three_records
from tests.firestore_backends import PROJECT, named
from tests.servers.firestore import EMULATOR, shared

__all__ = ["test_records_are_listed_shown_explained_and_counted"]  # imported here so that pytest finds it

FIELDS = "?fields=key:hash,state:status,lease_until:lock_expires_at,updated_at,created_at,error:error_message"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    shared()
    url = f"firestore://{PROJECT}/{named(tmp_path, 'cli')}{FIELDS}"
    # A claim on a busy emulator takes longer than elsewhere.
    with three_records(url, tmp_path, monkeypatch, lease="1s", lapse=1.1):
        yield url


def test_the_doctor_names_the_server_and_what_expires_records(store: str) -> None:
    result = call("doctor")
    said = {one["name"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)}
    assert result.exit_code == Exit.ATTENTION
    assert said["server"] == ("ok", f"the emulator at {shared()}: for tests")
    assert "expire_at" in said["expiry"][1]
    assert said["lapsed"][0] == said["parked"][0] == "attention"


def test_manual_changes_are_in_the_audit_trail(store: str) -> None:
    assert as_json("resolve", "parked", "--abandon", "--why", "not worth it", "--yes")
    assert as_json("forget", "done", "--yes")
    assert [(one["verb"], one["key"]) for one in as_json("audit")] == [("forget", "done"), ("resolve", "parked")]
    assert standings(as_json("ls", "--state", "PARKED")) == {}


def test_a_database_without_a_schema_has_nothing_to_migrate(store: str) -> None:
    assert as_json("migrate", "--dry-run")["version"] is None


@pytest.mark.fault("F50")
def test_a_server_that_is_not_there_is_one_line_and_a_code(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")
    result = call("ls")
    assert result.exit_code == Exit.DOWN
    assert "cannot be reached" in line(result)
