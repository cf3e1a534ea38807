"""Find the record that the typed key or id means, and never another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.keys.key import Scope, parse_scope
from tests.cli.calls import call

STORE = "sqlite:///onceward.db"
LONG = "x" * 300
VERBS = (("show",), ("explain",), ("forget", "--yes"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def made(*keys: object, app: str = "shop") -> None:
    with Once(STORE, app=app) as once:
        for key in keys:
            once.run(key, int)


def is_there(key: object) -> bool:
    with Once(STORE, app="shop") as once:
        return once.read(key) is not None


@pytest.mark.parametrize("verb", VERBS)
def test_a_long_key_is_not_taken_for_another_that_begins_like_it(verb: tuple[str, ...]) -> None:
    made(LONG)
    result = call(*verb, "--store", STORE, "x" * 250 + "AAA-other-order")
    assert result.exit_code == Exit.ABSENT
    assert "keys of over 200 characters are displayed cut" in result.stderr
    assert is_there(LONG)


def test_a_long_key_is_found_among_those_that_begin_like_it() -> None:
    made(LONG, LONG + "y", LONG + "z")
    assert call("forget", "--yes", "--store", STORE, LONG + "y").exit_code == 0
    assert [is_there(key) for key in (LONG, LONG + "y", LONG + "z")] == [True, False, True]


def test_a_long_key_that_is_made_of_parts_is_named_by_its_id() -> None:
    made(("order", LONG))
    result = call("forget", "--yes", "--store", STORE, f"(order, {LONG})")
    assert result.exit_code == Exit.ABSENT
    id = result.stderr.partition("if you mean ")[2].partition(", use")[0]
    assert call("forget", "--yes", "--store", STORE, id).exit_code == 0
    assert not is_there(("order", LONG))


def test_a_key_that_looks_like_an_id_is_not_taken_for_another_record() -> None:
    made("innocent")
    with Once(STORE, app="shop") as once:
        like_an_id = f"id:{once.key('innocent').id.hex()[:4]}"
    made(like_an_id)
    result = call("forget", "--yes", "--store", STORE, like_an_id)
    assert result.exit_code == Exit.SEVERAL
    assert is_there("innocent")
    assert is_there(like_an_id)


@pytest.mark.parametrize("key", ["id:dead", "id:abc", "id:order"])
def test_a_key_that_begins_like_an_id_is_found(key: str) -> None:
    made(key)
    assert call("forget", "--yes", "--store", STORE, key).exit_code == 0
    assert not is_there(key)


def test_a_malformed_id_gets_a_hint_how_to_write_one() -> None:
    made("order")
    result = call("show", "--store", STORE, "id:order")
    assert result.exit_code == Exit.ABSENT
    assert "4 to 64 hexadecimal digits" in result.stderr


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(NAMES, NAMES, st.none() | NAMES)
def test_a_scope_is_read_from_its_text_or_not_at_all(app: str, operation: str, tenant: str | None) -> None:
    scope = Scope(app, operation, tenant)
    found = parse_scope(scope.text)
    assert found is None or found.text == scope.text
    if all(part is None or part.isprintable() for part in (app, operation, tenant)):
        assert found == scope


@pytest.mark.finding("N45")
@pytest.mark.parametrize("part", ["a\nb", "\x1b[31m", "\x00", "\u202e"])
def test_a_scope_with_control_characters_is_never_taken_for_another_one(part: str) -> None:
    shown = part.encode("unicode_escape").decode()
    assert Scope("shop", part).text != Scope("shop", shown).text
    assert parse_scope(Scope("shop", part).text) is None, "its text is not its name"
    assert parse_scope(Scope("shop", shown).text) == Scope("shop", shown)
