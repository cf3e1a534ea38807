"""The command on a Redis store: the same options, the same output, and an audit trail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from tests.cli.calls import as_json, call, line
from tests.cli.three_records import standings, test_records_are_listed_shown_explained_and_counted, three_records
from tests.servers.redis import RedisServer, shared

__all__ = ["test_records_are_listed_shown_explained_and_counted"]  # imported here so that pytest finds it


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


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server without persistence, with a record of an application that accepted this risk."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    server = RedisServer().begin()
    monkeypatch.setenv("ONCEWARD_STORE_URL", f"redis://127.0.0.1:{server.port}/0")
    with Once(server.url()) as once:
        once.run("done", int)
    yield server
    server.end()


def diagnosis(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    result = call("doctor", *words)
    return result.exit_code, {one["name"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)}


@pytest.mark.fault("F63")
def test_the_doctor_examines_a_server_that_programs_refuse(private: RedisServer) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        code, said = diagnosis()
        assert code == Exit.ATTENTION
        status, detail = said["eviction"]
        assert status == "attention"
        assert "maxmemory-policy allkeys-lru: when memory is short it drops live claims" in detail
        assert "set it to noeviction" in detail
        status, detail = said["persistence"]
        assert status == "attention"
        assert "keeps nothing through a restart" in detail
        assert "set appendonly yes" in detail
        assert said["clock"][0] == "ok"
        assert said["records"] == ("ok", "1")
        assert said["parked"] == ("ok", "0")
        assert "set it to noeviction" in call("doctor", "-o", "table").stdout
        refused = call("ls")
        assert refused.exit_code == Exit.USAGE
        assert "allkeys-lru" in line(refused), "all other commands still refuse it"
        raw.config_set("maxmemory-policy", "noeviction")
        raw.config_set("appendonly", "yes")
        code, said = diagnosis()
        assert (code, said["eviction"][0], said["persistence"][0]) == (Exit.OK, "ok", "ok")


def test_an_explicitly_accepted_risk_is_only_a_note(private: RedisServer) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
    code, said = diagnosis("--store", private.url("&unsafe_eviction=allow"))
    assert (code, said["eviction"], said["persistence"][0]) == (Exit.OK, ("note", "allkeys-lru"), "note")
    code, said = diagnosis("--store", private.url())
    assert (code, said["eviction"][0], said["persistence"][0]) == (Exit.ATTENTION, "attention", "note")


def test_the_doctor_names_the_permissions_that_it_lacks(private: RedisServer) -> None:
    with redis.Redis(port=private.port) as raw:
        raw.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~{onceward}*", "&{onceward}*", "+@read", "+@write",
                            "+@scripting", "+@connection", "+time", "+publish")  # fmt: skip
    code, said = diagnosis("--store", f"redis://app:pw@127.0.0.1:{private.port}/0")
    assert code == Exit.ATTENTION
    assert "allow +info for this user" in said["eviction"][1]
    assert "allow +info and +config|get for this user" in said["persistence"][1]
    assert said["records"] == ("ok", "1")


def test_there_is_nothing_to_migrate(store: str) -> None:
    assert "There is nothing to do." in call("migrate", "-o", "table").stdout
    assert as_json("migrate")["statements"] == []


def test_manual_changes_are_made_and_signed(store: str) -> None:
    assert call("release", "silent", "--yes", "--why", "its host is gone").exit_code == 0
    assert call("resolve", "parked", "--applied", "--yes", "--why", "the bank says so").exit_code == 0
    assert call("forget", "done", "--yes", "--why", "by mistake").exit_code == 0
    assert call("purge", "--yes").exit_code == 0
    assert standings(as_json("ls")) == {"parked": "COMPLETED", "silent": "FAILED"}, "released records are not listed"
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
