"""`onceward doctor` and windows that are shorter than a sender's retry span."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import Once, calendar, lasting, sliding
from onceward.cli.exit_codes import Exit
from onceward.cli.retry_spans import declared_for
from onceward.cli.settings import VARIABLES
from onceward.stores.postgres.schema import LATEST
from tests.cli.calls import as_json, call, line, silent_claims
from tests.heartbeats import stop_renewing
from tests.servers.postgres import Postgres

STORE = "sqlite:///onceward.db"
pytestmark = pytest.mark.fault("F47")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def work(window: object, key: str = "k", *, app: str = "shop", tenant: str | None = None) -> None:
    choices: Any = {"app": app, "tenant": tenant, "window": window}
    with Once(STORE, **choices) as once, once.claim(key, name="charge") as claim:
        claim.complete("done")


def diagnosis(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    result = call("doctor", *words)
    checks = {one["name"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)}
    return result.exit_code, {name: check for name, check in checks.items() if name.startswith("window")}


def test_a_window_shorter_than_the_declared_retry_span_needs_attention(folder: Path) -> None:
    work("24h")
    (folder / "onceward.toml").write_text('[retry_spans]\n"shop/charge" = "3d"\n')
    code, windows = diagnosis()
    assert code == Exit.ATTENTION
    status, detail = windows["window shop/charge"]
    assert status == "attention"
    assert "1 of the newest 1 records are kept only for 1d, but the sender redelivers for 3d" in detail
    assert detail in call("doctor", "-o", "table").stdout, "not shortened, even without a terminal"


@pytest.mark.parametrize("window", ["3d", "forever", lasting("3d", since="attempt"), sliding("4d")], ids=str)
def test_a_window_as_long_as_the_retry_span_is_ok(window: object) -> None:
    work(window)
    code, windows = diagnosis("--retry-span", "shop/charge=3d")
    assert (code, windows["window shop/charge"][0]) == (Exit.OK, "ok")


@pytest.mark.parametrize("window", ["71h", sliding("2d"), calendar("UTC")], ids=str)
def test_each_kind_of_window_can_be_too_short(window: object) -> None:
    work(window)
    assert diagnosis("--retry-span", "shop/charge=3d")[0] == Exit.ATTENTION


def test_a_sliding_window_is_as_long_as_it_slides_however_far_it_has_moved() -> None:
    work(sliding("2d"))
    with closing(sqlite3.connect("onceward.db")) as raw, raw:
        raw.execute("UPDATE onceward_records SET claimed_at = claimed_at - 864000000000")  # ten days of replays ago
    assert diagnosis("--retry-span", "charge=3d")[0] == Exit.ATTENTION


def test_the_latest_records_decide_because_they_show_what_is_declared_now() -> None:
    for number in range(100):
        work("3d", f"new {number}")
    assert diagnosis("--retry-span", "charge=3d")[0] == Exit.OK
    work("1h", "one more, with less care")
    code, windows = diagnosis("--retry-span", "charge=3d")
    assert (code, "1 of the newest 100" in windows["window charge"][1]) == (Exit.ATTENTION, True)


def test_a_span_holds_for_a_tenant_an_app_or_an_operation_whichever_says_most() -> None:
    spans = {"charge": "1h", "shop/charge": "2d", "shop/charge@acme": "9d"}
    assert declared_for("shop/charge@acme", spans) == "shop/charge@acme"
    assert declared_for("shop/charge@other", spans) == "shop/charge"
    assert declared_for("shop/charge", spans) == "shop/charge"
    assert declared_for("elsewhere/charge@acme", spans) == "charge"
    assert declared_for("shop/refund", spans) is None
    work("3d", tenant="acme")
    work("3d", tenant="other")
    work("24h", app="elsewhere")
    flags = [word for name, span in spans.items() for word in ("--retry-span", f"{name}={span}")]
    _, windows = diagnosis(*flags)
    assert {name: status for name, (status, _) in windows.items()} == {
        "window charge": "ok",
        "window shop/charge": "ok",
        "window shop/charge@acme": "attention",
    }


def test_a_span_of_what_is_not_there_is_noted_and_no_alarm(folder: Path) -> None:
    work("24h")
    code, windows = diagnosis("--retry-span", "shop/chrage=3d")
    assert (code, windows["window shop/chrage"][0]) == (Exit.OK, "note")


def test_without_a_declaration_no_window_is_judged() -> None:
    work("1s")
    assert diagnosis() == (Exit.OK, {})


def test_a_flag_beats_the_file_and_config_shows_where_it_comes_from(folder: Path) -> None:
    work("24h")
    (folder / "pyproject.toml").write_text('[tool.onceward.retry-spans]\n"shop/charge" = "3d"\nmail = "1h"\n')
    assert as_json("config")["retry_spans.shop/charge"] == {"value": "3d", "source": "pyproject.toml"}
    assert diagnosis()[0] == Exit.ATTENTION
    assert diagnosis("--retry-span", "shop/charge=12h")[0] == Exit.OK


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('retry_spans = "3d"', "retry_spans is not a table of scopes and durations"),
        ("[retry_spans]\ncharge = 3", "retry_spans is not a table of scopes and durations"),
        ('[retry_spans]\ncharge = "soon"', "the retry span of charge is not a duration: 'soon'"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused_by_name(folder: Path, content: str, complaint: str) -> None:
    (folder / "onceward.toml").write_text(content)
    result = call("config")
    assert result.exit_code == Exit.USAGE
    assert complaint in line(result)


@pytest.mark.parametrize("flag", ["3d", "=3d", "charge=soon"])
def test_a_flag_that_cannot_be_meant_is_refused(flag: str) -> None:
    work("24h")
    result = call("doctor", "--retry-span", flag)
    assert result.exit_code == Exit.USAGE
    assert "retry span" in line(result).replace("-", " ")


def test_a_lock_that_was_never_released_needs_no_attention() -> None:
    with Once(STORE) as once:
        lock = once.try_lock("sync", lease="50ms")
        assert lock is not None
        stop_renewing(once.heartbeat)  # as if its process had been killed
        time.sleep(0.06)
        result = call("doctor")
        said = {one["name"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)}
        assert result.exit_code == Exit.OK
        assert said["lapsed"] == ("ok", "0")
        assert said["lapsed locks"] == ("note", "1; the next caller can acquire them")
        silent_claims(once, {"work": "50ms"})
        result = call("doctor")
        [lapsed] = [one for one in json.loads(result.stdout) if one["name"] == "lapsed"]
        assert result.exit_code == Exit.ATTENTION
        assert "where their state is PENDING lapsed" in lapsed["detail"]


@pytest.mark.parametrize("commits", ["on", "off"])
def test_the_doctor_looks_at_the_tables_and_the_durability_of_postgresql(
    postgres: Postgres, schema: str, commits: str
) -> None:
    url = f"{postgres.url}?schema={schema}&options=-csynchronous_commit%3D{commits}"
    Once(f"{url}&migrate=1").read("anything")
    said = {one["name"]: (one["status"], one["detail"]) for one in as_json("doctor", "--store", url)}
    assert said["schema"] == ("ok", f"version {LATEST}; this Onceward writes {LATEST}")
    status, detail = said["durability"]
    assert status == ("ok" if commits == "on" else "note")
    assert f"synchronous_commit={commits}" in detail
    assert ("may run again" in detail) == (commits == "off")
