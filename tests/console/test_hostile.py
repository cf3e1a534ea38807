"""Requests that no page of the console sends: odd names, huge numbers, deep JSON, other schemes, replayed previews."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import Once
from onceward.console import Access
from onceward.console.page import built_in_pages
from onceward.console.pages.failures import LISTED
from onceward.console.table import Column, Empty, Table
from tests.console.shop import attempt, filled_shop
from tests.console.visitor import Visitor, console_of

PAGES = [page.name for page in built_in_pages() if page.group]
MANY_DIGITS = "9" * 5000  # Python refuses to convert them
COOKIE_LIMIT = 4096


@pytest.fixture
def once() -> Iterator[Once]:
    with filled_shop("memory://") as shop:
        yield shop


@pytest.fixture
def visitor(once: Once) -> Visitor:
    return Visitor(console_of(once))


def parked(visitor: Visitor, scope: str = "shop/pay@acme") -> dict[str, Any]:
    rows: list[dict[str, Any]] = visitor.json("/parked?format=json")["parked"]
    return next(row for row in rows if row["scope"] == scope)


def form_of(row: dict[str, Any], action: str, **fields: str) -> dict[str, str]:
    return {"action": action, "token": str(row["token"]), "state": "PARKED", "key": row["key"], "why": "x", **fields}


def encoded_preview(page: str) -> str:
    return page.partition('name="preview" value="')[2].partition('"')[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_query_field_of_any_name_is_answered(visitor: Visitor, page: str) -> None:
    for name in ("path", "self", "changes", "query", "limit", "after%00"):
        assert visitor.get(f"/{page}?{name}={MANY_DIGITS}").status_code == 200, name


def test_numbers_and_json_without_bounds_are_refused_kindly(visitor: Visitor, once: Once) -> None:
    row = parked(visitor)
    for fields in ({"token": MANY_DIGITS}, {"result": "[" * 100_000}, {"result": MANY_DIGITS}):
        answer = visitor.post(f"/keys/{row['id']}/act", form_of(row, "resolve-applied", **fields))
        assert answer.status_code == 303
        assert "nothing was changed" in visitor.get(f"/keys/{row['id']}").text
    assert once.audit() == []


def test_a_preview_without_a_selection_does_not_mean_all_records(visitor: Visitor) -> None:
    visitor.get("/keys")
    forms: list[dict[str, Any]] = [{}, {"id": []}, {"group": ""}, {"filter-scope": ""}]
    for form in forms:
        answer = visitor.post("/bulk/preview", {"action": "forget", **form})
        assert answer.status_code == 409
        assert "no records are selected" in answer.text


def test_a_replayed_preview_says_that_nothing_was_done(visitor: Visitor, once: Once) -> None:
    row = parked(visitor)
    preview = encoded_preview(visitor.post("/bulk/preview", {"action": "forget", "id": [row["id"]]}).text)
    visitor.post("/bulk/apply", {"preview": preview, "why": "x"})
    assert "Forget: 1 done" in visitor.get("/keys").text
    visitor.post("/bulk/apply", {"preview": preview, "why": "x"})
    again = visitor.get("/keys").text
    assert "1 left alone: it was changed in the meantime" in again
    assert "0 done" not in again
    assert len(once.audit()) == 1


def test_a_page_over_plain_http_cannot_post_to_https(once: Once) -> None:
    visitor = Visitor(console_of(once), origin="https://127.0.0.1:8321")
    row = parked(visitor)
    form = form_of(row, "resolve-abandon")
    assert visitor.post(f"/keys/{row['id']}/act", form, origin="http://127.0.0.1:8321").status_code == 403
    assert once.audit() == []
    assert visitor.post(f"/keys/{row['id']}/act", form).status_code == 303


@pytest.mark.finding("N43")
@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
def test_cookies_are_sent_over_https_only_if_the_server_says_that_the_request_used_it(
    once: Once, scheme: str, secure: bool
) -> None:
    answer = Visitor(console_of(once), origin=f"{scheme}://127.0.0.1:8321").get("/keys", x_forwarded_proto="https")
    assert answer.status_code == 200
    assert ("secure" in answer.headers["set-cookie"].lower()) is secure


@pytest.mark.finding("N43")
@pytest.mark.parametrize("host", ["[", "127.0.0.1:port", "a@b:1", "https://127.0.0.1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_malformed_host_raises_nothing_and_changes_nothing(once: Once, host: str, scheme: str) -> None:
    visitor = Visitor(console_of(once, authorize=lambda _request: Access("admin")), origin=f"{scheme}://127.0.0.1:8321")
    row = parked(visitor)
    assert visitor.get("/keys", host=host).status_code in {200, 400, 403}
    form = form_of(row, "resolve-abandon")
    for origin in ("http://127.0.0.1:8321", "https://127.0.0.1:8321", "http://["):
        answer = visitor.post(f"/keys/{row['id']}/act", form, host=host, origin=origin)
        assert answer.status_code in {400, 403}
    assert once.audit() == []


def test_the_form_says_why_an_action_must_be_forced(visitor: Visitor) -> None:
    row = parked(visitor)
    visitor.post(f"/keys/{row['id']}/act", form_of(row, "resolve-abandon"))
    page = visitor.get(f"/keys/{row['id']}").text
    assert "Force it, although an operator abandoned it, so that it does not run again." in page
    assert "Stop that worker first" not in page


def test_a_proxy_that_ends_tls_may_speak_plain_http_to_the_console(visitor: Visitor, once: Once) -> None:
    row = parked(visitor)
    form = form_of(row, "resolve-abandon")
    assert visitor.post(f"/keys/{row['id']}/act", form, origin="https://127.0.0.1:8321").status_code == 303
    assert len(once.audit()) == 1


@pytest.mark.parametrize("key", ["\N{SLIGHTLY SMILING FACE}" * 600, "\x00" * 600, '"\\' * 600])
def test_a_message_about_a_long_key_fits_into_a_cookie(visitor: Visitor, key: str) -> None:
    row = parked(visitor)
    answer = visitor.post(f"/keys/{row['id']}/act", form_of(row, "retry", key=key))
    assert len(answer.headers["set-cookie"]) < COOKIE_LIMIT
    assert 'role="alert"' in visitor.get(f"/keys/{row['id']}").text


@pytest.mark.parametrize("flash", ["x", "_w==.", "....", "a" * 3000])
def test_a_forged_message_is_only_text(visitor: Visitor, flash: str) -> None:
    visitor.cookies["onceward_flash"] = flash
    assert visitor.get("/keys").status_code == 200


def test_csv_starts_no_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]
    table = Table("t", [Column("a", "A")], [{"a": text} for text in texts], Empty("", ""))
    rows = list(csv.reader(io.StringIO(table.as_csv(), newline="")))[1:]
    assert [row[0] for row in rows] == [f"'{text}" for text in texts]


def test_secrets_in_pairs_are_hidden_too(visitor: Visitor, once: Once) -> None:
    """A map with a number as a key is shown as pairs; headers are often pairs as well."""
    value = {"password": "hunter2", 7: {"token": "hunter2"}, "headers": [("Authorization", "hunter2"), ("host", "a")]}
    once.run("pairs:1", lambda: value)
    id = visitor.json("/keys?format=json&prefix=pairs:")["keys"][0]["id"]
    shown = visitor.get(f"/keys/{id}?show=result").text
    assert "hunter2" not in shown
    assert shown.count("***") >= 3
    assert "host" in shown


def test_a_key_is_found_by_the_control_characters_that_it_contains(visitor: Visitor, once: Once) -> None:
    once.run("line\n\u202eone", int)
    assert len(visitor.json("/keys?format=json&prefix=line%0A%E2%80%AE")["keys"]) == 1


def test_entries_of_others_do_not_push_out_those_of_a_tenant(visitor: Visitor, once: Once) -> None:
    own = parked(visitor)
    visitor.post(f"/keys/{own['id']}/act", form_of(own, "resolve-abandon", why="asked acme"))
    other = once.using(tenant="globex")
    for number in range(201):  # the page shows 200
        other.run(f"import:{number}", int)
    page = visitor.post("/bulk/preview", {"action": "forget", "filter-scope": "shop/shared@globex"}).text
    while preview := encoded_preview(page):
        page = visitor.post("/bulk/apply", {"preview": preview, "why": "tidy up"}).text
    assert len(once.audit(limit=500)) == 202
    limited = Visitor(console_of(once, authorize=lambda _request: Access("read", tenants=("acme",))))
    assert [entry["why"] for entry in limited.json("/audit?format=json")["audit"]] == ["asked acme"]


def test_a_large_failure_group_is_listed_in_part(visitor: Visitor, once: Once) -> None:
    @once(key="bad:{n}", name="bad")
    def bad(n: int) -> None:
        raise RuntimeError(n)

    for number in range(LISTED + 5):
        attempt(bad, number)
    [group] = [one for one in visitor.json("/failures?format=json")["failure_groups"] if one["count"] > LISTED]
    page = visitor.get(f"/failures/{group['id']}").text
    assert page.count("data-row-link") == LISTED
    assert "JSON and CSV contain 5 more" in page
    assert len(visitor.json(f"/failures/{group['id']}?format=json")["keys"]) == LISTED + 5


def test_an_empty_page_says_what_it_looked_for(visitor: Visitor) -> None:
    assert "No unfinished sagas" in visitor.get("/sagas").text
    assert "No saga is in this state" in visitor.get("/sagas?state=COMPLETED").text
    assert "No scope with latest states is known" in visitor.get("/states").text
    assert "No latest states in this scope" in visitor.get("/states?scope=shop/health").text
