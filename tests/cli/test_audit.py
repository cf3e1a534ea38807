"""The audit trail: every command that changes records writes an entry; audit, show and explain print it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.client.audit_identity import user_and_host
from tests.cli.calls import as_json, call, line, raising, silent_claims

STORE = "sqlite:///onceward.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a record for each verb."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    with Once(STORE, app="shop") as once:
        once.run("done", lambda: {"secret": 5})
        once.using(final=ValueError).outcome("refused", raising(ValueError("no such order")))
        once.using(after_crash="park").outcome("parked", raising(TimeoutError("no answer")))
        silent_claims(once, {"live": "1h", "lapsed": "50ms"})
    return tmp_path


def tokens() -> dict[str, int]:
    return {one["key"]: one["token"] for one in as_json("ls", "--state", "FREE", *_WORK)}


_WORK = tuple(word for state in ("PENDING", "COMPLETED", "FAILED", "PARKED") for word in ("--state", state))

DEEDS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "release": (("release", "lapsed"), "", "PENDING", "FAILED"),
    "release by force": (("release", "live", "--force"), "forced", "PENDING", "FAILED"),
    "retry": (("retry", "refused"), "", "FAILED", "FAILED"),
    "resolve applied": (("resolve", "parked", "--applied", "--result", '"hush"'), "applied", "PARKED", "COMPLETED"),
    "resolve not applied": (("resolve", "parked", "--not-applied"), "not_applied", "PARKED", "FAILED"),
    "abandon": (("resolve", "parked", "--abandon"), "abandon", "PARKED", "FAILED"),
    "forget": (("forget", "done"), "", "COMPLETED", "FREE"),
    "forget by force": (("forget", "live", "--force"), "forced", "PENDING", "FREE"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_every_change_by_hand_records_who_when_why_and_what(deed: str) -> None:
    words, detail, before, after = DEEDS[deed]
    key, old = words[1], tokens()[words[1]]
    assert call(*words, "--why", "ticket 7", "--yes").exit_code == 0
    [entry] = as_json("audit")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00", entry.pop("at"))
    assert re.fullmatch(r"[0-9a-f]{64}", entry.pop("id"))
    assert entry == {
        "who": user_and_host(),
        "verb": words[0],
        "detail": detail,
        "why": "ticket 7",
        "scope": "shop/shared",
        "key": key,
        "state_before": before,
        "state_after": after,
        "token_before": old,
        "token_after": tokens()[key],
        "count": 1,
    }
    assert entry["token_after"] > old


def test_a_purge_is_one_entry_with_its_count() -> None:
    raw = sqlite3.connect("onceward.db")
    raw.execute("UPDATE onceward_records SET valid_until = 1, token = 1 WHERE key IN ('done', 'refused')")
    raw.commit()
    raw.close()
    assert as_json("purge", "--yes", "--why", "the disk fills up")["count"] == 2
    [entry] = as_json("audit")
    assert (entry["verb"], entry["why"], entry["count"], entry["id"], entry["key"]) == (
        "purge", "the disk fills up", 2, None, "",
    )  # fmt: skip
    assert "2 records" in call("audit", "-o", "table").stdout
    assert as_json("purge", "--yes")["count"] == 0
    assert len(as_json("audit")) == 1, "a command that changes nothing leaves no entry"


@pytest.mark.parametrize(
    "words",
    [
        ("release", "live", "--yes"),
        ("release", "lapsed"),
        ("retry", "done", "--yes"),
        ("resolve", "parked", "--applied"),
        ("forget", "live", "--yes"),
        ("purge",),
    ],
    ids=" ".join,
)
def test_a_refused_or_unconfirmed_change_leaves_no_entry(words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == Exit.REFUSED
    assert as_json("audit") == []
    assert "No entries." in call("audit", "-o", "table").stderr


def test_the_trail_is_narrowed_by_key_id_age_scope_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = as_json("show", "done")["id"]
    call("resolve", "parked", "--abandon", "--yes")
    call("forget", "done", "lapsed", "--yes")
    everything = as_json("audit")
    assert [one["key"] for one in everything[-1:]] == ["parked"], "the latest first"
    assert {one["key"] for one in everything} == {"parked", "done", "lapsed"}
    for key in ("done", f"id:{identity}", f"id:{identity[:8]}"):
        assert [one["key"] for one in as_json("audit", key)] == ["done"]
    assert as_json("audit", "nothing") == []
    assert as_json("audit", "--scope", "elsewhere/shared") == []
    assert as_json("audit", "--since", "1h") == everything
    assert as_json("audit", "--since", "1ms") == []
    result = call("audit", "--limit", 2)
    assert json.loads(result.stdout) == everything[:2]
    assert "more than these 2" in result.stderr
    assert call("audit", "--since", "yesterday").exit_code == Exit.USAGE
    assert as_json("audit", "id:xyz") == [], "may be a key"


def test_a_long_key_is_found_in_the_trail_by_itself() -> None:
    key = "long\n" * 20_000
    with Once(STORE, app="shop") as once:
        once.run(key, str)
        once.run(key[:-1], str)
    assert call("forget", f"id:{once.key(key).id.hex()}", "--yes").exit_code == 0
    assert [one["id"] for one in as_json("audit", key)] == [once.key(key).id.hex()]


def test_show_and_explain_say_what_was_done_to_the_record() -> None:
    call("resolve", "parked", "--not-applied", "--why", "no such transfer", "--yes")
    assert [one["why"] for one in as_json("show", "parked")["audit"]] == ["no such transfer"]
    shown = call("show", "parked", "-o", "table").stdout
    assert f"{user_and_host()}  resolve not applied  PARKED → FAILED: no such transfer" in shown
    output = as_json("explain", "parked")["explanation"][-1]
    assert f": {user_and_host()} ran resolve not applied, from PARKED to FAILED. Reason: no such transfer." in output
    assert "Changed manually " in call("explain", "parked", "-o", "table").stdout
    assert as_json("show", "done")["audit"] == []


def test_the_trail_outlives_the_record() -> None:
    call("forget", "done", "--yes", "--why", "a test order")
    raw = sqlite3.connect("onceward.db")
    raw.execute("UPDATE onceward_records SET token = 1 WHERE key = 'done'")
    raw.commit()
    raw.close()
    assert as_json("purge", "--yes")["count"] == 1
    assert call("show", "done").exit_code == Exit.ABSENT
    assert [one["why"] for one in as_json("audit", "done")] == ["a test order"]


def test_neither_payloads_nor_results_enter_the_trail() -> None:
    call("resolve", "parked", "--applied", "--result", '"hush hush"', "--yes")
    call("forget", "done", "parked", "--yes")
    raw = sqlite3.connect("onceward.db")
    rows = repr(raw.execute("SELECT * FROM onceward_audit").fetchall())
    raw.close()
    assert "parked" in rows
    assert "hush" not in rows
    assert "secret" not in rows


@pytest.mark.parametrize(
    "verb", ["release lapsed", "retry refused", "resolve parked --abandon", "forget done", "purge"]
)
def test_a_reason_that_is_too_long_is_refused_before_anything_is_changed(verb: str) -> None:
    before = as_json("ls")
    result = call(*verb.split(), "--why", "x" * 1001, "--yes")
    assert result.exit_code == Exit.USAGE
    assert "too long for the audit trail" in line(result)
    assert [one["token"] for one in as_json("ls")] == [one["token"] for one in before]


NASTY = "\x1b[2J\n\r🦄\u202e\udcff"


def test_no_reason_breaks_the_terminal() -> None:
    assert call("forget", "done", "--yes", "--why", NASTY).exit_code == 0
    call("retry", "refused", "--yes", "--why", NASTY)
    for words in (("audit",), ("show", "refused"), ("explain", "refused")):
        result = call(*words, "-o", "table")
        assert result.exit_code == 0, result.output
        assert all(char.isprintable() for char in result.stdout.replace("\n", "")), ascii(result.stdout)
        assert call(*words).stdout.isascii()
    assert len(call("audit", "-o", "table").stdout.splitlines()) == 3


def changed_meanwhile(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    from onceward.cli import change as acting

    monkeypatch.setattr(acting, "ask", lambda *_, **__: change())


@pytest.mark.fault("F66")
@pytest.mark.parametrize("words", [("forget", "lapsed"), ("forget", "lapsed", "--force"), ("release", "lapsed")])
def test_a_record_completed_before_the_person_confirms_is_left_alone_and_leaves_no_entry(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The late owner's completion has the very token that the person was shown."""

    def late() -> None:
        raw = sqlite3.connect("onceward.db")
        raw.execute("UPDATE onceward_records SET state = NULL, lease_until = NULL WHERE key = 'lapsed'")
        raw.commit()
        raw.close()

    changed_meanwhile(monkeypatch, late)
    result = call(*words)
    assert result.exit_code == Exit.REFUSED
    assert line(result) == "onceward: lapsed was changed in the meantime; nothing was changed now → inspect it again"
    assert as_json("show", "lapsed")["state"] == "COMPLETED"
    assert as_json("audit") == []


@pytest.mark.parametrize("verb", ["release", "forget"])
def test_an_owner_that_comes_back_before_the_person_confirms_is_spared(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def renewed() -> None:
        raw = sqlite3.connect("onceward.db")
        raw.execute("UPDATE onceward_records SET lease_until = lease_until + 60000000 WHERE key = 'lapsed'")
        raw.commit()
        raw.close()

    changed_meanwhile(monkeypatch, renewed)
    result = call(verb, "lapsed")
    assert result.exit_code == Exit.REFUSED
    assert "the owner of lapsed is alive" in line(result)
    assert as_json("show", "lapsed")["standing"] == "PENDING"
    assert as_json("audit") == []


def test_of_several_keys_those_that_changed_are_reported_and_the_others_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def claimed() -> None:
        with Once(STORE, app="shop", fingerprint="none") as once:
            once.outcome("lapsed", str)

    changed_meanwhile(monkeypatch, claimed)
    result = call("forget", "lapsed", "done")
    assert result.exit_code == Exit.REFUSED
    assert [one["key"] for one in json.loads(result.stdout)["records"]] == ["done"]
    assert line(result).startswith("onceward: lapsed was changed in the meantime")
    assert [one["key"] for one in as_json("audit")] == ["done"]


@pytest.mark.skipif(os.name != "posix", reason="a variable decides there")
def test_an_environment_variable_does_not_set_the_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "mallory")
    monkeypatch.setenv("LOGNAME", "mallory")
    call("forget", "done", "--yes")
    assert "mallory" not in as_json("audit")[0]["who"]
