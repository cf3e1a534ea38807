"""Every action by clicking, in a real browser, by operators with different access. One console serves all tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from onceward import Once
from tests.console.application import store_url
from tests.console.served import in_thread, process
from tests.servers.browser import opened

PATIENCE = 30_000  # ms; the machine may be busy


class Shop:
    """A console in a process of its own, and the browsers of its operators."""

    def __init__(self, address: str, folder: Path, browser: Browser) -> None:
        self.address = address
        self._folder = folder
        self._browser = browser
        self._pages: dict[str, Page] = {}

    def open(self, user: str, path: str) -> Page:
        """Open a page as this operator, who keeps one window."""
        if user not in self._pages:
            self._pages[user] = self._browser.new_context(extra_http_headers={"x-user": user}).new_page()
            self._pages[user].set_default_timeout(PATIENCE)
        self._pages[user].goto(f"{self.address}/{path}")
        return self._pages[user]

    def key(self, user: str, key: str, scope: str = "") -> Page:
        """Open the page of one key."""
        page = self.open(user, f"keys?prefix={key}&scope={scope}")
        page.locator("[data-row-link]", has_text=re.compile(f"^{key}$")).first.click()
        expect(page.locator("h1")).to_have_text(key)
        return page

    def audit(self) -> list[tuple[str, str, str]]:
        """Return verb, key and operator of each entry, the latest first."""

        def read() -> list[tuple[str, str, str]]:
            with Once(store_url(self._folder)) as once:
                return [(one.verb, one.key, one.who) for one in once.audit(limit=1000)]

        return in_thread(read)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    expect.set_options(timeout=PATIENCE)
    with opened() as page, process("tests.console.application", str(folder)) as address:
        assert page.context.browser is not None
        yield Shop(address, folder, page.context.browser)


def fill_in(form: Locator, action: str, why: str = "as agreed", result: str = "") -> None:
    """Open the form of an action, and send it."""
    form = form.locator("details", has=form.page.locator("summary", has_text=re.compile(f"^{action}$")))
    form.locator("summary").click()
    if result:
        form.get_by_label("Result").fill(result)
    if form.get_by_role("checkbox").count():
        form.get_by_role("checkbox").check()
    form.get_by_label("Reason").fill(why)
    form.get_by_role("button", name=action).click()


def done(page: Page) -> Locator:
    return page.get_by_role("status")


@pytest.mark.timeout(300)
def test_every_action_on_one_record(shop: Shop) -> None:
    steps = (
        ("wire:paid", "Resolve: it was applied", "COMPLETED", '{"receipt": 12345678901234567890}'),
        ("wire:unpaid", "Resolve: it was not applied", "FAILED", ""),
        ("wire:given up", "Resolve: abandon it", "FAILED", ""),
        ("charge:3", "Retry", "FAILED", ""),
        ("running:1", "Release", "", ""),
        ("running:2", "Forget", "FREE", ""),
        ("charge:2", "Forget", "FREE", ""),
        ("booking:1", "Undo the saga", "", ""),
    )
    for key, action, state, result in steps:
        page = shop.key("ann", key)
        fill_in(page.locator("main"), action, result=result)
        expect(done(page)).to_contain_text("done. It is in the audit trail")
        if state:
            expect(page.locator("main .state").first).to_contain_text(state)
        if result:
            page.goto(f"{page.url}?show=result")
            expect(page.locator("main")).to_contain_text("12345678901234567890")
    verbs = {key: verb for verb, key, who in shop.audit() if who == "ann (console)"}
    assert verbs.items() >= {
        (key, action.partition(":")[0].split()[0].lower().replace("undo", "resolve")) for key, action, *_ in steps
    }


def test_a_schedule_is_paused_resumed_and_run_now(shop: Shop) -> None:
    page = shop.open("ann", "schedules/nightly")
    for action, text in (
        ("Pause", "nightly is paused"),
        ("Resume", "nightly runs again"),
        ("Run now", "nightly: a runner will start it now"),
    ):
        fill_in(page.locator("main"), action)
        expect(done(page)).to_have_text(text)
        assert page.url == f"{shop.address}/schedules/nightly"
    assert [verb for verb, *_ in shop.audit() if verb in ("pause", "resume", "run-now")] == [
        "run-now",
        "resume",
        "pause",
    ]


def test_a_failure_group_is_retried_and_forgotten_as_a_whole(shop: Shop) -> None:
    for action in ("Retry", "Forget"):
        page = shop.open("ann", "failures")
        [group] = page.locator("tr", has_text="RuntimeError").all()
        group.get_by_role("link").click()
        page.get_by_role("button", name=f"{action}…").click()
        expect(page.locator(".figure", has_text="Will change")).to_contain_text("4")
        page.get_by_role("link", name="Cancel").click()
        expect(page.locator("h1")).to_have_text("RuntimeError")
        page.get_by_role("button", name=f"{action}…").click()
        page.get_by_label("Reason").fill("the file is complete now")
        page.get_by_role("button", name=f"{action} 4").click()
        expect(done(page)).to_have_text(f"{action}: 4 done")
    page.goto(f"{shop.address}/failures")
    expect(page.locator("tr", has_text="RuntimeError")).to_have_count(0)


def test_rows_of_two_operators_are_previewed_and_changed_once(shop: Shop) -> None:
    """Both see the preview. The first changes the records; the second is told, and changes nothing."""
    pages = [shop.open(user, "keys?tenant=globex&state=PARKED") for user in ("ann", "ben")]
    for page in pages:
        page.get_by_label("Select all rows of this page").check()
        page.get_by_role("button", name="Forget…").click()
        page.get_by_label("Reason").fill("the tenant left")
    pages[0].get_by_role("button", name="Forget 2").click()
    expect(done(pages[0])).to_have_text("Forget: 2 done")
    pages[1].get_by_role("button", name="Forget 2").click()
    expect(pages[1].get_by_role("alert")).to_contain_text("2 left alone: it was changed in the meantime")
    assert [who for verb, key, who in shop.audit() if key.startswith("pay:") and verb == "forget"] == [
        "ann (console)"
    ] * 2


def test_people_are_reviewed(shop: Shop) -> None:
    page = shop.open("ann", "people")
    for button, text in (("The same person", "are one person"), ("Different people", "are different people")):
        expect(page.locator("article").first).to_be_visible()
        page.locator("article").first.get_by_role("button", name=button).click()
        expect(done(page)).to_contain_text(text)


def test_a_dead_letter_is_inspected_and_forgotten(shop: Shop) -> None:
    page = shop.open("ann", "dead-letters")
    page.get_by_role("link", name="m-17").click()
    expect(page.locator("main")).to_contain_text("mails")
    assert page.locator("main summary", has_text="Resolve").count() == 0, "it describes no work"
    fill_in(page.locator("main"), "Forget")
    expect(done(page)).to_contain_text("done")
    page.goto(f"{shop.address}/dead-letters")
    expect(page.locator("main")).to_contain_text("No message was parked")


def test_an_operator_of_one_tenant_sees_and_changes_only_that(shop: Shop) -> None:
    page = shop.open("eve", "keys")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody")).not_to_contain_text("globex")
    menu = page.locator("#menu")
    expect(menu.get_by_role("link", name="People review")).to_have_count(0)
    answer = page.goto(f"{shop.address}/people")
    assert answer is not None
    assert answer.status == 403
    page.goto(f"{shop.address}/parked")
    fill_in(page.locator("article", has_text="pay:bob"), "Resolve: abandon it")
    expect(done(page)).to_contain_text("done")
    expect(page.locator("article")).to_have_count(1)
    assert page.locator("summary", has_text="Forget").count() == 0, "it needs the level admin"


def test_direct_requests_change_nothing_without_permission(shop: Shop) -> None:
    """The forms of an admin are sent from the browser of a reader, and from one of another tenant."""
    admin = shop.key("ann", "charge:1")
    id = admin.url.rpartition("/")[2].partition("?")[0]
    before = shop.audit()
    for user, expected in (("joe", {403}), ("eve", {303, 403})):
        page = shop.open(user, "keys")
        assert (
            user != "joe" or page.locator("form[method=post]").count() == page.locator("form[action$=sign-out]").count()
        )
        [cookie] = [one for one in page.context.cookies() if one.get("name") == "onceward_csrf"]
        token = {"csrf": cookie.get("value", ""), "why": "mine", "key": "charge:1", "token": "1", "state": "COMPLETED"}
        for path, form in (
            (f"keys/{id}/act", {"action": "forget"}),
            (f"keys/{id}/act", {"action": "retry"}),
            ("bulk/preview", {"action": "forget", "id": id}),
            ("schedules-action/pause", {"name": "nightly"}),
            ("people/answer", {"one": "1", "other": "2", "answer": "same"}),
        ):
            answer = page.request.post(
                f"{shop.address}/{path}", form={**token, **form}, headers={"origin": shop.address}, max_redirects=0
            )
            assert answer.status in expected | ({409} if user == "eve" else set()), (
                user,
                path,
                answer.status,
                answer.text(),
            )
    assert shop.audit() == before
