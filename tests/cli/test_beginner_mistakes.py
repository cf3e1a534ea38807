"""Common mistakes of new users get a hint: keys like options, scopes, durations, values as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from onceward import Once
from onceward.administration import json_values as values
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from tests.cli.calls import as_json, call, line, raising

STORE = "sqlite:///onceward.db"
KEYED = ("show", "explain", "release", "retry", "resolve", "forget", "audit")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    with Once(STORE, app="shop") as once:
        once.run("-dash", lambda: None)
    return tmp_path


# ── keys that begin like an option ──


@pytest.mark.parametrize("command", KEYED)
@pytest.mark.parametrize("key", ["-dash", "--dash", "-order"])
def test_a_key_like_an_option_gets_a_hint_to_put_it_after_two_dashes(command: str, key: str) -> None:
    result = call(command, key)
    assert result.exit_code == Exit.USAGE
    assert f"after -- and all options: onceward {command} -- {key}" in result.stderr


@pytest.mark.parametrize("command", KEYED)
def test_the_help_of_commands_that_take_a_key_says_so_too(command: str) -> None:
    said = " ".join(call(command, "--help").stdout.split())
    assert f"Put a KEY that begins with a dash after -- and all options: onceward {command} -- -x" in said


def test_the_suggested_command_can_be_typed() -> None:
    assert call("forget", "-dash", "--yes").exit_code == Exit.USAGE
    assert call("forget", "--yes", "--", "-dash").exit_code == Exit.OK


@pytest.mark.parametrize("words", [("ls", "--states"), ("explain",), ("show", "--scope")])
def test_other_mistakes_have_no_word_about_keys(words: tuple[str, ...]) -> None:
    result = call(*words)
    assert result.exit_code == Exit.USAGE
    assert "begins with a dash" not in result.stderr


# ── scopes ──


@pytest.mark.parametrize("scope", ["slow-wait", "shop/slow-wait", "slow-wait@acme"])
def test_a_scope_that_lacks_a_part_gets_a_hint_with_the_full_scope(scope: str) -> None:
    with Once(STORE, app="shop", tenant="acme") as once, once.claim("k", name="slow-wait"):
        pass
    for words in (("show", "k"), ("explain", "k"), ("forget", "--yes", "k")):
        result = call(*words, "--scope", scope)
        assert result.exit_code == Exit.ABSENT
        assert line(result).endswith(
            "a scope is app/operation, or app/operation@tenant. Did you mean shop/slow-wait@acme?"
        )
    listed = call("ls", "--scope", scope)
    assert (listed.exit_code, listed.stdout) == (Exit.OK, "[]\n")
    assert line(listed).endswith("Did you mean shop/slow-wait@acme?")


def test_an_unknown_scope_gets_a_hint_what_a_scope_is() -> None:
    listed = call("ls", "--scope", "nosuch")
    assert (listed.exit_code, listed.stdout) == (Exit.OK, "[]\n")
    assert line(listed).startswith("onceward: there is no scope 'nosuch'; a scope is app/operation")
    assert "Did you mean" not in listed.stderr


def test_a_scope_that_is_there_is_no_mistake() -> None:
    assert "a scope is" not in call("show", "other", "--scope", "shop/shared").stderr
    assert call("ls", "--scope", "shop/shared", "--state", "PARKED").stderr == ""
    assert call("ls", "--scope", "shop/new").stderr == ""  # nothing was done there yet


# ── words for a shell ──


@pytest.mark.parametrize("words", [("ls", "--older-than"), ("ls", "--claimed-before"), ("stats", "--since")])
def test_a_duration_error_in_the_shell_names_units_that_a_shell_accepts(words: tuple[str, ...]) -> None:
    said = line(call(*words, "banana"))
    assert said.endswith('write "24h", "1h30m", "90s" or "500ms"')


def test_a_store_that_the_command_would_refuse_is_not_offered() -> None:
    said = line(call("ls", "--store", "shop.db"))
    assert "sqlite:///" in said
    assert "memory" not in said


@pytest.mark.parametrize("word", ["parked", "PARKED", "Parked"])
def test_a_state_is_taken_in_any_case(word: str) -> None:
    with Once(STORE, app="shop", after_crash="park") as once:
        once.outcome("parked", raising(TimeoutError()))
    assert [one["key"] for one in as_json("ls", "--state", word)] == ["parked"]


def test_states_are_shown_in_capitals_as_everywhere() -> None:
    assert "'nosuch' is not one of FREE, PENDING, COMPLETED, FAILED, PARKED." in call("ls", "--state", "nosuch").stderr
    assert "[FREE|PENDING|COMPLETED|FAILED|PARKED]" in "".join(call("ls", "--help").stdout.split())


# ── explain ──


def test_explain_speaks_of_another_payload_only_where_one_could_be() -> None:
    with Once(STORE, app="shop") as once:
        once.run("given", int, "5")

        @once(key="{order}")
        def whole(order: str) -> None: ...

        whole("in the key")
    said = {key: " ".join(as_json("explain", "--", key)["explanation"]) for key in ("-dash", "given", "in the key")}
    assert {key: "a different payload" in text for key, text in said.items()} == {
        "-dash": False,  # no argument at all
        "given": True,
        "in the key": False,  # nothing beyond the key
    }


# ── values ──


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"body": b"{\xff}", "all": [b"hi"]}, {"body": {"bytes": "e/99"}, "all": [{"bytes": "aGk="}]}),
        ({b"x": 1}, [[{"bytes": "eA=="}, 1]]),
        ({(1, 2): None, "a": True}, [[[1, 2], None], ["a", True]]),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, (2.5, "x")), [1, [2.5, "x"]]),
    ],
)
def test_a_value_is_json_through_and_through(value: Any, shown: Any) -> None:
    with Once(STORE, app="shop", fingerprint="none") as once:
        once.run("k", lambda: value)
    assert as_json("show", "k", "--value")["value"] == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (bytearray(b"a"), {"bytes": "YQ=="}),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00+00:00"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(minutes=1, microseconds=5), "60.000005s"),
        (Decimal("19.90"), "19.90"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (1j, "1j"),
    ],
)
def test_values_without_a_json_type_get_their_own_form(value: Any, shown: Any) -> None:
    assert values.as_json(value) == shown
