"""The console on servers: the same pages and actions as on the embedded stores, which the other tests use."""

from __future__ import annotations

import pytest

from onceward.console.page import built_in_pages
from tests.console.shop import filled_shop
from tests.console.visitor import Visitor, console_of
from tests.servers.postgres import new_database
from tests.servers.redis import shared


def url_of(store: str, request: pytest.FixtureRequest) -> str:
    if store == "redis":
        return shared().url(database=9)  # no other test uses it
    return f"{new_database(request.getfixturevalue('postgres'), 'console')}?migrate=1"


@pytest.mark.parametrize("store", ["postgres", "redis"])
def test_pages_and_actions_work_on_a_server(store: str, request: pytest.FixtureRequest) -> None:
    with filled_shop(url_of(store, request)) as once:
        visitor = Visitor(console_of(once))
        for page in built_in_pages():
            if page.group:
                assert visitor.get(f"/{page.name}").status_code == 200, page.name
        for query in (
            "keys?scope",
            "keys?tenant",
            "keys?note",
            "keys?error_type",
            "keys?prefix",
            "find?q",
            "states?scope",
        ):
            assert visitor.get(f"/{query}=%00").status_code in (200, 400), query  # PostgreSQL has no NUL in texts
        rows = visitor.json("/keys?format=json&state=PARKED&scope=shop%2Fpay@acme")["keys"]
        assert {row["key"] for row in rows} == {"pay:ann", "pay:bob"}
        row = rows[0]
        form = {"action": "resolve-applied", "result": "7", "token": str(row["token"]), "state": "PARKED"}
        visitor.post(f"/keys/{row['id']}/act", {**form, "key": row["key"], "why": "the bank said so"})
        assert "COMPLETED" in visitor.get(f"/keys/{row['id']}").text
        audited = visitor.json("/audit?format=json")["audit"]  # the server may hold records of other tests
        assert [one["why"] for one in audited if one["key"] == row["key"]] == ["the bank said so"]
