"""Who may see and change what. The server decides on every request, whatever the pages offer."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from starlette.requests import Request

from onceward import AsyncOnce, Once
from onceward.console import Access, BasicAuth, Console, TokenAuth
from onceward.console.access import Granted
from onceward.console.auth import SESSION_COOKIE
from onceward.console.page import built_in_pages
from onceward.console.serve import authorize_from
from onceward.console.sign_in_limit import KNOWN_COOKIE, MAX_FAILURES, SECONDS, SignInLimit
from onceward.errors import ConfigurationError, LeaseLost
from tests.console.shop import filled_shop
from tests.console.visitor import Visitor, console_of

TOKEN = "a long and secret token"
PAGES = [page.name for page in built_in_pages() if page.group]


@pytest.fixture
def once() -> Iterator[Once]:
    with filled_shop("memory://") as shop:
        yield shop


def parked(visitor: Visitor) -> dict[str, str]:
    found: dict[str, str] = visitor.json("/parked?format=json")["parked"][0]
    return found


def form_of(row: dict[str, str], action: str = "resolve-not-applied") -> dict[str, str]:
    return {"action": action, "token": str(row["token"]), "state": "PARKED", "key": row["key"], "why": "asked the bank"}


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_shown_and_is_also_json_and_csv(once: Once, page: str) -> None:
    visitor = Visitor(console_of(once))
    shown = visitor.get(f"/{page}")
    assert shown.status_code == 200
    assert shown.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in shown.headers["content-security-policy"]
    assert " style=" not in shown.text
    assert " onclick=" not in shown.text
    assert "<script>" not in shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert isinstance(visitor.json(f"/{page}?format=json"), dict)
    table = visitor.get(f"/{page}?format=csv")
    assert table.headers["content-type"].startswith("text/csv")


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("10.0.0.7", 1), {}),
        (("127.0.0.1", 1), {"host": "evil.example"}),
        (("127.0.0.1", 1), {"host": "localhost.evil.example"}),
        (("127.0.0.1", 1), {"host": "evil.example@localhost"}),
        (("127.0.0.1", 1), {"host": "evil]:["}),
        (("127.0.0.1", 1), {"x-forwarded-for": "10.0.0.7"}),
        (("127.0.0.1", 1), {"forwarded": "for=10.0.0.7"}),
    ],
    ids=[
        "another machine",
        "a name that resolves to this machine",
        "a similar name",
        "a user",
        "no name",
        "a proxy",
        "a proxy by the standard",
    ],
)
def test_without_authentication_only_this_machine_is_answered(
    once: Once, client: tuple[str, int], headers: dict[str, str]
) -> None:
    stranger = Visitor(console_of(once), client=client, headers=headers)
    for path in ("/overview", "/keys?format=json", "/bulk/apply"):
        assert stranger.get(path).status_code == 403
    assert "pay:ann" not in stranger.get("/keys").text
    assert Visitor(console_of(once)).get("/overview").status_code == 200


def test_the_command_refuses_other_hosts_without_authentication() -> None:
    with pytest.raises(ConfigurationError, match="ONCEWARD_CONSOLE_TOKEN"):
        authorize_from({}, "0.0.0.0", "me")
    assert isinstance(authorize_from({"ONCEWARD_CONSOLE_TOKEN": TOKEN}, "0.0.0.0", "me"), TokenAuth)
    assert isinstance(authorize_from({"ONCEWARD_CONSOLE_USER": f"ann:{TOKEN}"}, "0.0.0.0", "me"), BasicAuth)
    with pytest.raises(ConfigurationError, match="fewer than"):
        authorize_from({"ONCEWARD_CONSOLE_TOKEN": "short"}, "0.0.0.0", "me")


def test_a_token_signs_in_and_is_not_in_the_cookie(once: Once) -> None:
    visitor = Visitor(console_of(once, authorize=TokenAuth(TOKEN)), client=("10.0.0.7", 1))
    assert visitor.get("/keys").status_code == 401
    asked = visitor.get("/keys?state=PARKED", accept="text/html")
    assert asked.headers["location"] == "/sign-in?next=%2Fkeys%3Fstate%3DPARKED"
    assert visitor.get("/sign-in").status_code == 200
    assert visitor.post("/sign-in", {"token": "wrong", "next": "/keys"}).status_code == 401
    assert visitor.get("/keys").status_code == 401
    signed_in = visitor.post("/sign-in", {"token": TOKEN, "next": "/keys?state=PARKED"})
    assert signed_in.headers["location"] == "/keys?state=PARKED"
    assert "httponly" in signed_in.headers["set-cookie"].lower()
    assert TOKEN not in str(visitor.cookies)
    assert visitor.get("/keys").status_code == 200
    assert visitor.post("/sign-out", {}).status_code == 303
    assert visitor.get("/keys").status_code == 401


def test_an_address_with_many_wrong_tokens_has_to_wait(once: Once) -> None:
    """It has to wait even with the right token. Others, and those who are signed in, are not affected."""
    console = console_of(once, authorize=TokenAuth(TOKEN))
    seconds = [0.0]
    console.sign_in_limit = SignInLimit(lambda: seconds[0])
    guessing, signed_in = Visitor(console, client=("10.0.0.7", 1)), Visitor(console, client=("10.0.0.7", 2))
    program = Visitor(console, client=("10.0.0.7", 3), headers={"authorization": f"Bearer {TOKEN}"})
    signed_in.get("/sign-in")
    signed_in.post("/sign-in", {"token": TOKEN})
    guessing.get("/sign-in")
    for number in range(MAX_FAILURES):
        assert guessing.post("/sign-in", {"token": f"guess {number}"}).status_code == 401
        seconds[0] += 1
    refused = guessing.post("/sign-in", {"token": TOKEN})
    assert refused.status_code == 429
    assert "Too many wrong attempts from your address. Wait 50 s" in refused.text
    assert (program.get("/keys").status_code, program.get("/keys").headers["retry-after"]) == (429, "50")
    assert signed_in.get("/keys").status_code == 200
    other = Visitor(console, client=("10.0.0.8", 1))
    other.get("/sign-in")
    assert other.post("/sign-in", {"token": TOKEN}).status_code == 303
    seconds[0] = SECONDS
    assert guessing.post("/sign-in", {"token": TOKEN}).status_code == 303
    assert program.get("/keys").status_code == 200


def test_wrong_passwords_and_bearer_tokens_count_too(once: Once) -> None:
    for authorize, scheme in ((BasicAuth({"ann": TOKEN}), "Basic"), (TokenAuth(TOKEN), "Bearer")):
        console = console_of(once, authorize=authorize)
        guessing = Visitor(console, headers={"authorization": f"{scheme} wrong"})
        assert [guessing.get("/keys").status_code for _ in range(MAX_FAILURES + 1)] == [401] * MAX_FAILURES + [429]
        assert Visitor(console).get("/keys").status_code == 401, "without a secret there is nothing to guess"


def test_guessed_session_cookies_count_too_and_a_stale_one_is_deleted(once: Once) -> None:
    console = console_of(once, authorize=TokenAuth(TOKEN))
    guessing = Visitor(console, client=("10.0.0.7", 1))
    codes = []
    for number in range(MAX_FAILURES + 1):
        guessing.cookies = {SESSION_COOKIE: TokenAuth(f"a guessed token {number}").session()}
        codes.append(guessing.get("/keys").status_code)
        if number == 0:
            assert SESSION_COOKIE not in guessing.cookies
    assert codes == [401] * MAX_FAILURES + [429]
    guessing.cookies = {SESSION_COOKIE: TokenAuth(TOKEN).session()}
    assert guessing.get("/keys").status_code == 429


@pytest.mark.parametrize("scheme", ["Basic", "session"])
def test_a_stranger_behind_the_same_proxy_locks_out_nobody_who_has_signed_in(once: Once, scheme: str) -> None:
    proxy = ("10.0.0.1", 1)
    if scheme == "Basic":
        pair = base64.b64encode(f"ann:{TOKEN}".encode()).decode()
        console = console_of(once, authorize=BasicAuth({"ann": TOKEN}))
        ann = Visitor(console, client=proxy, headers={"authorization": f"Basic {pair}"})
        assert ann.get("/keys").status_code == 200
    else:
        console = console_of(once, authorize=TokenAuth(TOKEN))
        ann = Visitor(console, client=proxy)
        ann.get("/sign-in")
        assert ann.post("/sign-in", {"token": TOKEN}).status_code == 303
    stranger = Visitor(console, client=proxy, headers={"authorization": f"{scheme} wrong"})
    stranger.cookies = {KNOWN_COOKIE: "invented"}
    assert [stranger.get("/keys").status_code for _ in range(MAX_FAILURES + 1)] == [401] * MAX_FAILURES + [429]
    assert ann.get("/keys").status_code == 200


def test_other_addresses_of_one_network_and_forwarded_headers_give_no_further_attempts(once: Once) -> None:
    console = console_of(once, authorize=TokenAuth(TOKEN))
    codes = []
    for number in range(MAX_FAILURES + 1):
        headers = {"authorization": "Bearer wrong", "x-forwarded-for": f"192.0.2.{number}", "x-real-ip": "192.0.2.1"}
        codes.append(
            Visitor(console, client=(f"2001:db8:0:1::{number:x}", 1), headers=headers).get("/keys").status_code
        )
    assert codes == [401] * MAX_FAILURES + [429]


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_never_leads_to_another_site(once: Once, target: str) -> None:
    visitor = Visitor(console_of(once, authorize=TokenAuth(TOKEN)))
    visitor.get("/sign-in")
    assert visitor.post("/sign-in", {"token": TOKEN, "next": target}).headers["location"] == "/overview"


def test_a_bearer_token_serves_programs(once: Once) -> None:
    console = console_of(once, authorize=TokenAuth(TOKEN))
    program = Visitor(console, headers={"authorization": f"Bearer {TOKEN}"})
    assert program.get("/keys?format=json").status_code == 200
    row = parked(program)
    program.cookies.clear()
    assert program.post(f"/keys/{row['id']}/act", form_of(row), origin="").status_code == 303
    assert Visitor(console, headers={"authorization": "Bearer wrong"}).get("/keys").status_code == 401


def test_basic_auth_gives_each_user_an_own_level(once: Once) -> None:
    users: dict[str, str | tuple[str, Access]] = {"ann": "anns password", "bob": ("bobs password", Access("read"))}
    console = console_of(once, authorize=BasicAuth(users))

    def visitor(name: str, password: str) -> Visitor:
        pair = base64.b64encode(f"{name}:{password}".encode()).decode()
        return Visitor(console, headers={"authorization": f"Basic {pair}"})

    assert Visitor(console).get("/keys").headers["www-authenticate"].startswith("Basic")
    for name, password in (("ann", "bobs password"), ("eve", ""), ("", ""), ("ann", "")):
        assert visitor(name, password).get("/keys").status_code == 401
    ann, bob = visitor("ann", "anns password"), visitor("bob", "bobs password")
    row = parked(ann)
    bob.get("/keys")
    assert bob.post(f"/keys/{row['id']}/act", form_of(row)).status_code == 403
    assert ann.post(f"/keys/{row['id']}/act", form_of(row)).status_code == 303
    [entry] = once.audit()
    assert entry.who == "ann (console)"
    assert entry.why == "asked the bank"


def test_read_only_is_enforced_against_direct_requests(once: Once) -> None:
    """The pages offer no forms, and a request that is made by hand is refused, even by an admin."""
    acting = Visitor(console_of(once))
    row = parked(acting)
    reader = Visitor(Console(once, authorize=lambda _request: "admin"))
    assert 'method="post"' not in reader.get(f"/keys/{row['id']}").text
    posts = [action for page in built_in_pages() for action in page.actions if action.method == "POST"]
    assert len(posts) >= 5
    for action in posts:
        path = action.path.replace("{id}", row["id"]).replace("{verb}", "pause")
        for verb in ("resolve-not-applied", "forget"):
            answer = reader.post(path, {**form_of(row, verb), "id": row["id"], "name": "nightly", "answer": "same"})
            assert answer.status_code == 403, path
            assert "This console is read-only" in answer.text
    assert parked(acting)["token"] == row["token"]
    assert once.audit() == []


@pytest.mark.parametrize("level", ["none", "read", "act", "admin"])
def test_each_level_may_do_what_it_says(once: Once, level: str) -> None:
    row = parked(Visitor(console_of(once)))
    visitor = Visitor(console_of(once, authorize=lambda _request: level))
    assert visitor.get("/keys").status_code == (403 if level == "none" else 200)
    forgetting = visitor.post(f"/keys/{row['id']}/act", form_of(row, "forget"))
    assert forgetting.status_code == (303 if level == "admin" else 403)
    if level != "admin":
        resolving = visitor.post(f"/keys/{row['id']}/act", form_of(row))
        assert resolving.status_code == (303 if level == "act" else 403)
    assert len(once.audit()) == (0 if level in ("none", "read") else 1)


def test_force_needs_the_highest_level(once: Once) -> None:
    with pytest.raises(LeaseLost), once.claim("export:1", name="export") as claim:
        visitor = Visitor(console_of(once, authorize=lambda _request: "act"))
        row = visitor.json("/keys?format=json&prefix=export:1")["keys"][0]
        form = {**form_of(row, "release"), "state": "PENDING", "force": "1"}
        assert visitor.post(f"/keys/{row['id']}/act", form).status_code == 403
        assert "force it" not in visitor.get(f"/keys/{row['id']}").text
        assert once.audit() == []
        admin = Visitor(console_of(once))
        assert "Force it, although its lease has not expired" in admin.get(f"/keys/{row['id']}").text
        admin.post(f"/keys/{row['id']}/act", {**form, "force": ""})
        assert "its lease has not expired" in admin.get(f"/keys/{row['id']}").text
        admin.post(f"/keys/{row['id']}/act", form)
        assert [(entry.verb, entry.detail) for entry in once.audit()] == [("release", "forced")]
        claim.complete(None)


async def _only_acme(_request: Request) -> Granted:
    return Access("admin", tenants=("acme",), user="ann")


@pytest.mark.parametrize("access", [Access("admin", tenants=("acme",)), Access("admin", scopes=("shop/pay@acme",))])
def test_limits_hold_on_every_page_and_for_every_action(once: Once, access: Access) -> None:
    everything = Visitor(console_of(once))
    foreign = next(row for row in everything.json("/parked?format=json")["parked"] if row["scope"] == "shop/pay@globex")
    group = everything.json("/failures?format=json")["failure_groups"]
    limited = Visitor(console_of(once, authorize=lambda _request: access))
    for page in PAGES:
        for form in ("", "?format=json", "?format=csv"):
            text = limited.get(f"/{page}{form}").text
            assert "globex" not in text, page
            assert "shop/charge" not in text.replace('placeholder="shop/charge"', ""), page
    assert {row["key"] for row in limited.json("/keys?format=json")["keys"]} == {"pay:ann", "pay:bob"}
    assert limited.json("/keys?format=json&tenant=globex")["keys"] == []
    assert limited.get(f"/keys/{foreign['id']}").status_code == 404
    assert limited.get("/people").status_code == 403

    limited.post(f"/keys/{foreign['id']}/act", form_of(foreign))
    limited.post(f"/keys/{foreign['id']}/act", form_of(foreign, "forget"))
    preview = limited.post("/bulk/preview", {"action": "forget", "id": [foreign["id"]]})
    assert "No record would be changed" in preview.text
    for one in group:
        assert "globex" not in limited.post("/bulk/preview", {"action": "retry", "group": one["id"]}).text
    assert once.audit() == []


def test_a_preview_that_was_changed_by_hand_stays_within_the_limits(once: Once) -> None:
    everything = Visitor(console_of(once))
    foreign = next(row for row in everything.json("/parked?format=json")["parked"] if row["scope"] == "shop/pay@globex")
    page = everything.post("/bulk/preview", {"action": "forget", "id": [foreign["id"]]}).text
    encoded = page.partition('name="preview" value="')[2].partition('"')[0]
    limited = Visitor(console_of(once, authorize=_only_acme))
    limited.get("/keys")
    limited.post("/bulk/apply", {"preview": encoded, "why": "mine now"})
    acting = Visitor(console_of(once, authorize=lambda _request: "act"))
    acting.get("/keys")
    assert acting.post("/bulk/apply", {"preview": encoded, "why": "mine now"}).status_code == 403
    assert once.audit() == []
    assert everything.post("/bulk/apply", {"preview": encoded, "why": "really"}).status_code == 303
    assert [entry.verb for entry in once.audit()] == ["forget"]


def test_no_scope_at_all_is_not_the_same_as_no_limit(once: Once) -> None:
    visitor = Visitor(console_of(once, authorize=lambda _request: Access("admin", scopes=())))
    assert visitor.get("/keys").status_code == 403


def test_a_misspelt_level_is_an_error_and_not_access(once: Once) -> None:
    visitor = Visitor(console_of(once, authorize=lambda _request: "amdin"))
    with pytest.raises(ConfigurationError, match="admin"):
        visitor.get("/keys")
    with pytest.raises(ConfigurationError, match="list of texts"):
        Access("read", tenants="acme")
    with pytest.raises(ConfigurationError, match="Once or AsyncOnce"):
        Console("sqlite:///shop.db")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": ""},
    ],
    ids=["foreign origin", "sandboxed page", "cross-site", "sibling site", "no origin at all"],
)
def test_a_form_of_another_site_changes_nothing(once: Once, headers: dict[str, str]) -> None:
    visitor = Visitor(console_of(once))
    row = parked(visitor)
    answer = visitor.post(f"/keys/{row['id']}/act", form_of(row), **headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert once.audit() == []


@pytest.mark.parametrize("token", ["", "x", "A" * 43])
def test_a_form_needs_the_token_of_its_browser(once: Once, token: str) -> None:
    visitor = Visitor(console_of(once))
    row = parked(visitor)
    assert visitor.post(f"/keys/{row['id']}/act", form_of(row), csrf=token).status_code == 403
    visitor.cookies.clear()
    assert visitor.post(f"/keys/{row['id']}/act", form_of(row), csrf=token).status_code == 403
    assert once.audit() == []


def test_a_body_that_is_no_form_is_refused(once: Once) -> None:
    visitor = Visitor(console_of(once))
    visitor.get("/keys")
    assert visitor.post("/bulk/apply", {"preview": "x" * 2_100_000}).status_code == 413
    assert visitor.post("/bulk/apply", {"preview": "not a preview", "why": "x"}).status_code == 409
    assert visitor.post("/keys/zz/act", {"action": "forget", "why": "x", "token": "9" * 400}).status_code in (303, 404)


def test_an_async_client_has_the_same_console(tmp_path: object) -> None:
    """Each request of this visitor runs on a loop of its own, as memory allows."""
    visitor = Visitor(console_of(AsyncOnce("memory://")))
    assert visitor.get("/overview").status_code == 200
    assert visitor.json("/keys?format=json")["keys"] == []
