"""`onceward erase`, and how `onceward ls` filters and pages."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from tests.cli.calls import as_json, call, line

STORE = "sqlite:///onceward.db"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for tenant in ("acme", "umbrella"):
        with Once(STORE, app="shop", tenant=tenant) as once:
            for number in range(4):
                with once.claim(f"mail:{number}", name="send"):
                    pass


# ── erase ──


@pytest.mark.finding("N28")
def test_erase_shows_a_preview_unless_it_is_confirmed() -> None:
    shown = call("erase", "--tenant", "acme", "-o", "table").stdout
    assert "       4  shop/send@acme" in shown
    assert "such as mail:" in shown
    assert "to erase: 4 records, 0 latest states; the tenant in 0 counter rows; the key in 0 audit entries" in shown
    assert "Nothing was deleted → add --yes" in shown
    assert len(as_json("ls")) == 8


@pytest.mark.finding("N28")
def test_erase_with_yes_deletes_and_is_audited_without_the_tenant() -> None:
    done = as_json("erase", "--tenant", "acme", "--yes", "--why", "ticket 4711")
    assert (done["done"], done["records"]) == (True, 4)
    assert {one["scope"] for one in as_json("ls", "--state", "COMPLETED", "--state", "FREE")} == {"shop/send@umbrella"}
    [entry] = as_json("audit")
    assert (entry["verb"], entry["why"], entry["count"]) == ("erase", "ticket 4711", 4)
    assert "acme" not in call("audit").stdout
    shown = call("erase", "--prefix", "mail:", "--yes", "-o", "table").stdout
    assert "erased: 4 records, 0 latest states; the tenant in 0 counter rows; the key in 0 audit entries" in shown
    assert "kept: 0 records in use or changed, 0 unreadable" in shown


@pytest.mark.finding("N28")
def test_erase_by_scope_and_prefix() -> None:
    assert as_json("erase", "--scope", "shop/send@acme", "--prefix", "mail:3", "--yes")["records"] == 1
    assert len(as_json("ls", "--scope", "shop/send@acme")) == 3


@pytest.mark.finding("N28")
def test_erase_by_key_does_not_match_longer_keys() -> None:
    with Once(STORE, app="shop") as once:
        for key in ("mail:jane", "mail:janet"):
            with once.claim(key, name="send"):
                pass
            once.forget(key, name="send", why="a test")
            with once.claim(key, name="send"):
                pass
    shown = call("erase", "--key", "mail:jane", "-o", "table").stdout
    assert "to erase: 1 record, 0 latest states; the tenant in 0 counter rows; the key in 1 audit entry" in shown
    assert as_json("erase", "--key", "mail:jane", "--yes")["audit_entries"] == 1
    assert [one["key"] for one in as_json("ls", "--prefix", "mail:jan")] == ["mail:janet"]
    shown = call("audit", "-o", "table").stdout
    assert "erase by key" in shown
    assert "1 record\n" in shown
    assert shown.count("COMPLETED → FREE") == 2, "the redacted entry keeps its change"


@pytest.mark.finding("N28")
@pytest.mark.parametrize("confirmed", [(), ("--yes",)])
def test_erase_says_if_nothing_matches(confirmed: tuple[str, ...]) -> None:
    result = call("erase", "--tenant", "acm", *confirmed)
    assert result.exit_code == Exit.ABSENT
    assert "nothing matches: check the spelling of the tenant" in line(result)
    assert call("erase", "--key", "mail:", *confirmed).exit_code == Exit.ABSENT
    assert len(as_json("ls")) == 8


@pytest.mark.finding("N28")
def test_erase_names_the_number_of_kept_records() -> None:
    with Once(STORE, app="shop") as once, once.claim("mail:7", name="send"):
        result = call("erase", "--key", "mail:7", "--yes", "-o", "table")
    assert result.exit_code == Exit.ATTENTION
    assert "erased: 0 records" in result.stdout
    assert "kept: 1 record in use or changed, 0 unreadable" in result.stdout
    assert "1 record kept: in use by a worker, or changed → run it again later" in result.stderr


@pytest.mark.finding("N28")
def test_erase_says_if_deleted_content_is_still_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.client.erasure.DISCARD_TIMEOUT", 0.2)
    reader = sqlite3.connect("onceward.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM onceward_records").fetchall()
    result = call("erase", "--tenant", "acme", "--yes")
    reader.close()
    assert (result.exit_code, "still in the write-ahead log" in result.stderr) == (Exit.ATTENTION, True)


@pytest.mark.finding("N28")
def test_a_scope_without_its_tenant_says_that_each_tenant_has_a_scope() -> None:
    said = line(call("erase", "--scope", "shop/send", "--prefix", "mail:"))
    assert "each tenant has a scope of its own (shop/send@TENANT): add --tenant TENANT" in said
    assert "--tenant TENANT" not in line(call("erase", "--scope", "shop/sent", "--tenant", "acme"))
    assert as_json("erase", "--scope", "shop/send", "--tenant", "acme", "--prefix", "mail:3")["records"] == 1


@pytest.mark.finding("N28")
def test_erase_without_a_selection_is_refused() -> None:
    result = call("erase", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "pass a tenant, a scope, a key or a key prefix" in line(result)


# ── ls ──


@pytest.mark.finding("N28")
def test_ls_filters_by_the_start_of_the_key() -> None:
    with Once(STORE, app="shop") as once, once.claim("a mail:1", name="send"):
        pass
    assert {one["key"] for one in as_json("ls", "--prefix", "mail:1")} == {"mail:1"}
    assert as_json("ls", "--prefix", "MAIL") == []


@pytest.mark.finding("N28")
@pytest.mark.parametrize("order", ["key", "created", "updated"])
def test_pages_of_ls_have_every_record_once(order: str) -> None:
    everything = [one["id"] for one in as_json("ls", "--sort", order)]
    found: list[str] = []
    after: list[str] = []
    while True:
        result = call("ls", "--sort", order, "--limit", "3", *after)
        page = json.loads(result.stdout)
        found += [one["id"] for one in page]
        if "There are more" not in result.stderr:
            break
        assert page[-1]["cursor"] in result.stderr
        after = ["--after", page[-1]["cursor"]]
    assert found == everything
    assert len(found) == 8


@pytest.mark.finding("N28")
def test_a_cursor_that_is_none_or_of_another_order_is_refused() -> None:
    result = call("ls", "--after", "xyz")
    assert (result.exit_code, "is not a cursor" in line(result)) == (Exit.USAGE, True)
    cursor = as_json("ls", "--sort", "key", "--limit", "1")[0]["cursor"]
    result = call("ls", "--sort", "created", "--after", cursor)
    assert (result.exit_code, "pass --sort key" in line(result)) == (Exit.USAGE, True)
