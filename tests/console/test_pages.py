"""What the pages show and do: filters in addresses, actions, bulk actions, hostile texts, path prefixes."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount

from onceward import Once
from onceward.console import Column, Console, Empty, Page, Table, Visit
from onceward.console.page import built_in_pages
from tests.console.shop import HOSTILE, filled_shop
from tests.console.visitor import Visitor, console_of

PAGES = [page.name for page in built_in_pages() if page.group]


@pytest.fixture
def once() -> Iterator[Once]:
    with filled_shop("memory://") as shop:
        yield shop


@pytest.fixture
def visitor(once: Once) -> Visitor:
    visitor = Visitor(console_of(once))
    visitor.get("/overview")  # sets the cookie that forms need
    return visitor


def keys(visitor: Visitor, query: str) -> set[str]:
    return {row["key"] for row in visitor.json(f"/keys?format=json&{query}")["keys"]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=PARKED&tenant=acme", {"pay:ann", "pay:bob"}),
        ("scope=shop/charge", {"charge:1", "charge:2", "charge:3"}),
        ("prefix=charge:2", {"charge:2"}),
        ("error_type=ValueError", {"charge:3"}),
        ("state=completed", {"charge:1", "charge:2"}),
        ("since=1h&prefix=pay:ann", {"pay:ann"}),
        ("before=1h", set()),
        ("since=2999-01-01", set()),
        ("note=none", set()),
    ],
)
def test_filters_are_in_the_address(visitor: Visitor, query: str, expected: set[str]) -> None:
    assert keys(visitor, query) == expected
    page = visitor.get(f"/keys?{query}").text
    shown = set(re.findall(r"data-row-link>([^<]*)</a>", page))
    assert shown == expected
    assert f"/keys?{html.escape(query.replace('/', '%2F').replace(':', '%3A'))}&amp;format=csv" in page, (
        "links keep the filters"
    )


def test_a_wrong_filter_is_explained(visitor: Visitor) -> None:
    for query in ("state=DONE", "since=yesterday", "id=xyz", "after=%FF"):
        answer = visitor.get(f"/keys?{query}")
        assert answer.status_code == 400, query
        assert 'role="alert"' in answer.text


def test_pages_are_read_one_after_the_other(visitor: Visitor, once: Once) -> None:
    for number in range(25):
        once.run(f"row:{number:02}", int)
    found: list[str] = []
    after = ""
    while True:
        page = visitor.json(f"/keys?format=json&prefix=row:&limit=10&after={after}")
        found += [row["key"] for row in page["keys"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(found) == [f"row:{number:02}" for number in range(25)]
    assert 'rel="next"' in visitor.get("/keys?prefix=row:&limit=10").text


def test_the_search_box_finds_a_key_an_id_and_a_beginning(visitor: Visitor) -> None:
    id = visitor.json("/keys?format=json&prefix=charge:1")["keys"][0]["id"]
    for wanted in ("charge:1", id, id[:20]):
        assert visitor.get(f"/find?q={wanted}").headers["location"] == f"/keys/{id}"
    several = visitor.get("/find?q=charge:")
    assert several.status_code == 200
    assert several.text.count("data-row-link") == 3
    assert "Nothing was found" in visitor.get("/find?q=nothing").text


def test_a_result_is_hidden_until_it_is_asked_for_and_secrets_stay_hidden(visitor: Visitor) -> None:
    id = visitor.json("/keys?format=json&prefix=charge:1")["keys"][0]["id"]
    hidden = visitor.get(f"/keys/{id}").text
    assert str(2**63 - 1) not in hidden
    shown = html.unescape(visitor.get(f"/keys/{id}?show=result").text)
    assert f'"balance": {2**63 - 1}' in shown, "large numbers keep all digits"
    assert "hunter2" not in hidden + shown
    assert '"password": "***"' in shown


def form_of(row: dict[str, Any], action: str, **more: str) -> dict[str, str]:
    return {
        "action": action,
        "token": str(row["token"]),
        "state": row["state"].split()[0],
        "key": row["key"],
        "why": "asked the bank",
        **more,
    }


def row_of(visitor: Visitor, query: str) -> dict[str, Any]:
    found: dict[str, Any] = visitor.json(f"/keys?format=json&{query}")["keys"][0]
    return found


@pytest.mark.parametrize(
    ("query", "action", "more", "state"),
    [
        ("prefix=pay:ann", "resolve-applied", {"result": '{"paid": 9007199254740993}', "window": "7d"}, "COMPLETED"),
        ("prefix=pay:ann", "resolve-not-applied", {}, "FAILED"),
        ("prefix=pay:ann", "resolve-abandon", {}, "FAILED final"),
        ("prefix=charge:3", "retry", {}, "FAILED"),
        ("prefix=charge:1", "forget", {}, "FREE"),
    ],
)
def test_an_action_changes_the_record_and_returns_to_its_page(
    visitor: Visitor, query: str, action: str, more: dict[str, str], state: str
) -> None:
    once = visitor.console.once
    row = row_of(visitor, query)
    page = f"/keys/{row['id']}"
    answer = visitor.post(f"{page}/act", {**form_of(row, action, **more), "back": f"{page}?show=result"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{page}?show=result")
    [entry] = once.audit()
    assert (entry.verb, entry.why, entry.key) == (action.split("-", maxsplit=1)[0], "asked the bank", row["key"])
    after = html.unescape(visitor.get(f"{page}?show=result").text)
    assert "done. It is in the audit trail" in after
    assert "done. It is in the audit trail" not in visitor.get(page).text, "a message is shown once"
    assert f">{state}</span>" in after or state == "FREE"
    assert "9007199254740993" in after or "result" not in more


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"why": " "}, "a reason is needed"),
        ({"result": "{not json"}, "the result is not JSON"),
        ({"action": "explode"}, "there is no such action"),
        ({"action": "retry"}, "there is nothing to retry"),
        ({"token": "1"}, "changed in the meantime"),
        ({"token": "x"}, "the form is not complete"),
        ({"state": ""}, "the form is not complete"),
        ({"state": "GONE"}, "the form is not complete"),
    ],
)
def test_an_action_that_is_not_possible_says_why(
    visitor: Visitor, once: Once, change: dict[str, str], problem: str
) -> None:
    row = row_of(visitor, "prefix=pay:ann")
    visitor.post(f"/keys/{row['id']}/act", {**form_of(row, "resolve-applied"), **change})
    assert problem in visitor.get(f"/keys/{row['id']}").text
    assert once.audit() == []


def test_of_two_operators_the_second_one_is_told(once: Once) -> None:
    ann, bob = Visitor(console_of(once)), Visitor(console_of(once))
    row = row_of(ann, "prefix=pay:ann")
    assert row_of(bob, "prefix=pay:ann") == row
    ann.post(f"/keys/{row['id']}/act", form_of(row, "resolve-applied", result="1"))
    bob.post(f"/keys/{row['id']}/act", form_of(row, "resolve-abandon"))
    assert "changed in the meantime" in bob.get(f"/keys/{row['id']}").text
    assert [entry.detail for entry in once.audit()] == ["applied"]


def preview_in(page: str) -> str:
    return page.partition('name="preview" value="')[2].partition('"')[0]


def test_a_bulk_action_shows_first_what_it_changes_and_why_not(visitor: Visitor, once: Once) -> None:
    rows = visitor.json("/keys?format=json")["keys"]
    back = "/keys?scope=shop%2Fcharge"
    page = visitor.post("/bulk/preview", {"action": "retry", "id": [row["id"] for row in rows], "back": back}).text
    assert re.search(r"Will change</span>\s*<span class=\"value\">1<", page)
    assert re.search(r"Left alone</span>\s*<span class=\"value\">6<", page)
    assert "there is nothing to retry: it is COMPLETED, not FAILED" in page
    assert once.audit() == []
    answer = visitor.post("/bulk/apply", {"preview": preview_in(page), "why": "the cards work again", "back": back})
    assert answer.headers["location"] == back
    assert "Retry: 1 done" in visitor.get(back).text
    assert [(entry.verb, entry.key) for entry in once.audit()] == [("retry", "charge:3")]


def test_a_bulk_action_leaves_alone_what_changed_since_its_preview(visitor: Visitor, once: Once) -> None:
    page = visitor.post("/bulk/preview", {"action": "forget", "filter-scope": "shop/charge"}).text
    assert re.search(r"Will change</span>\s*<span class=\"value\">3<", page)
    once.forget("charge:2", name="charge")
    answer = visitor.post("/bulk/apply", {"preview": preview_in(page), "why": "a new start"})
    shown = html.unescape(visitor.get(answer.headers["location"]).text)
    assert "Forget: 2 done" in shown
    assert "1 left alone: it was changed in the meantime" in shown


def test_a_failure_group_is_retried_as_a_whole(visitor: Visitor, once: Once) -> None:
    groups = visitor.json("/failures?format=json")["failure_groups"]
    assert {(one["error_type"], one["count"]) for one in groups} >= {("ValueError", 1)}
    [group] = [one for one in groups if one["error_type"] == "ValueError"]
    assert "charge:3" in visitor.get(f"/failures/{group['id']}").text
    page = visitor.post("/bulk/preview", {"action": "retry", "group": group["id"]}).text
    visitor.post("/bulk/apply", {"preview": preview_in(page), "why": "fixed"})
    assert [entry.key for entry in once.audit()] == ["charge:3"]
    assert visitor.get("/failures/none").status_code == 404


def test_many_records_are_changed_in_steps(visitor: Visitor, once: Once) -> None:
    for number in range(230):
        once.run(f"row:{number}", int)
    page = visitor.post("/bulk/preview", {"action": "forget", "filter-prefix": "row:"}).text
    form: dict[str, Any] = {"preview": preview_in(page), "why": "tidy up"}
    seen = []
    answer = visitor.post("/bulk/apply", form)
    while answer.status_code == 200:
        seen.append(re.findall(r"([\d,]+) of ([\d,]+) processed", answer.text)[0])
        fields = dict(re.findall(r'name="(preview|why|done|left_alone)" value="([^"]*)"', answer.text))
        answer = visitor.post("/bulk/apply", fields)
    assert seen == [("100", "230"), ("200", "230")]
    assert "Forget: 230 done" in visitor.get(answer.headers["location"]).text
    assert keys(visitor, "prefix=row:") == set()


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.handlers.append(name)
            if name in ("href", "src", "action", "formaction"):
                self.targets.append(value or "")


def test_hostile_texts_are_only_text_everywhere(tmp_path: Path) -> None:
    """Keys, scopes, errors, results and notes of attackers, on every page that shows them."""
    with filled_shop(f"sqlite:///{tmp_path / 'shop.db'}", hostile=True) as once:
        visitor = Visitor(console_of(once, title=HOSTILE[0]))
        rows = visitor.json("/keys?format=json&limit=500")["keys"]
        assert len(rows) >= 3 * len(HOSTILE)
        groups = visitor.json("/failures?format=json")["failure_groups"]
        paths = [f"/{page}" for page in PAGES]
        paths += [f"/keys/{row['id']}?show=result" for row in rows]
        paths += [f"/failures/{group['id']}" for group in groups]
        paths += [f"/keys?prefix={text}&scope={text}&note={text}&error_type={text}" for text in map(quoted, HOSTILE)]
        paths += [f"/find?q={text}" for text in map(quoted, HOSTILE)]
        paths += [f"/{text}" for text in map(quoted, HOSTILE)]
        for path in paths:
            answer = visitor.get(path)
            found = Tags(answer.text)
            assert not found.handlers, path
            assert not found.tags & {"img", "iframe", "object", "embed", "base"}, path
            assert not [target for target in found.targets if not re.match("/[^/\\\\]|#", target)], path
            assert "alert" not in "".join(re.findall(r"<script[^>]*>(.*?)</script>", answer.text)), path
            assert "\u202e" not in answer.text or "%80%AE" in path, "only the visitor's own input is kept as it is"
            assert "49" not in html.unescape(answer.text.partition("hostile:")[2][:40]), path
        once.run("=1+1", int)
        table = list(csv.reader(io.StringIO(visitor.get("/keys?format=csv&limit=500").text)))
        assert "'=1+1" in [cell for row in table for cell in row], "a spreadsheet shows it as text"
        assert not [cell for row in table[1:] for cell in row if cell.startswith(("=", "+", "@", "-"))]
        row = next(row for row in rows if row["key"].startswith("failing:<script"))
        visitor.post(f"/keys/{row['id']}/act", form_of(row, "resolve-abandon", why=HOSTILE[1]))
        for path in (f"/keys/{row['id']}", "/audit"):
            shown = visitor.get(path).text
            assert not Tags(shown).handlers
            assert html.escape(HOSTILE[1], quote=False) in shown.replace("&#34;", '"').replace("&#39;", "'")


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_it_works_below_a_prefix_in_another_application(once: Once) -> None:
    app = Starlette(routes=[Mount("/admin/onceward", console_of(once))])
    visitor = Visitor(app)
    assert visitor.get("/admin/onceward/").headers["location"] == "/admin/onceward/overview"
    row = visitor.json("/admin/onceward/parked?format=json")["parked"][0]
    page = f"/admin/onceward/keys/{row['id']}"
    found = Tags(visitor.get(page).text)
    assert found.targets
    assert all(target.startswith(("/admin/onceward/", "#")) for target in found.targets)
    for target in found.targets:
        if "/static/" in target:
            assert visitor.get(target).status_code == 200
    answer = visitor.post(f"{page}/act", {**form_of(row, "resolve-abandon"), "back": page})
    assert answer.headers["location"] == page
    assert "path=/admin/onceward" in answer.headers["set-cookie"].lower()
    assert len(once.audit()) == 1


def test_a_page_of_ones_own_is_one_file(once: Once) -> None:
    page = Page("refunds", "Refunds", "Shop")

    @page.get()
    async def show(visit: Visit) -> Response:
        empty = Empty("No refunds", "Refunds are listed here.")
        table = Table("refunds", [Column("order", "Order", "number")], [{"order": 12_345_678_901_234_567_890}], empty)
        return visit.table("list.html", table, intro="")

    @page.post("/all", needs=visit_level())
    async def act(visit: Visit) -> Response:
        return PlainTextResponse("refunded")

    visitor = Visitor(console_of(once, pages=[page], authorize=lambda _request: "act"))
    assert ">Refunds</a>" in visitor.get("/overview").text
    assert "12,345,678,901,234,567,890" in visitor.get("/refunds").text
    assert visitor.json("/refunds?format=json")["refunds"] == [{"order": 12_345_678_901_234_567_890}]
    assert visitor.post("/refunds/all", {}).status_code == 403, "the page asked for an admin"
    assert Visitor(Console(once, pages=[page])).get("/refunds").status_code == 200


def visit_level() -> Any:
    from onceward.console import Level

    return Level.ADMIN


def test_a_store_that_does_not_answer_is_said_on_the_page(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path / 'missing' / 'shop.db'}") as once:
        answer = Visitor(console_of(once)).get("/keys")
    assert answer.status_code in (400, 503)
    assert 'role="alert"' in answer.text
