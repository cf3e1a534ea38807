"""The console in a real browser: every page on the records of storms, every action, two operators, the keyboard."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from onceward import Once
from onceward.console.auth import MIN_SECRET
from tests.console.served import PAGES, PHONE, check_page, console, findings, in_thread, is_too_wide, process
from tests.console.shop import HOSTILE, attempt, filled_shop
from tests.servers.browser import opened

STORMS = os.environ.get("ONCEWARD_CONSOLE_STORMS", "outreach").split()
"""The systems whose records are looked at. `make soak` runs all of them, for longer."""

SECONDS = os.environ.get("ONCEWARD_CONSOLE_SECONDS", "0.5")
PATIENCE = 30_000  # ms; the machine may be busy


@pytest.fixture
def page() -> Iterator[Page]:
    with opened() as page:
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield page


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'shop.db'}?synchronous=NORMAL"
    in_thread(lambda: filled_shop(url, hostile=True).close())
    return url


@pytest.mark.timeout(1800)
def test_every_page_shows_the_records_of_storms(page: Page) -> None:
    systems = [part for name in STORMS for part in ("--system", name)]
    with process("examples.demo", "--quick", "--seconds", SECONDS, "--console", "--port", "0", *systems) as address:
        for name in STORMS:
            for path in PAGES:
                check_page(page, f"{address}/{name}/{path}")
            page.goto(f"{address}/{name}/keys")
            if page.locator("[data-row-link]").count():
                page.locator("[data-row-link]").first.click()
                expect(page.locator(".timeline").first).to_be_visible()
                check_page(page, page.url)


def test_hostile_texts_run_nothing_on_any_page(page: Page, store: str) -> None:
    """A dialog, a script error or a violation of the policy would fail the test when the page is closed."""
    with console(store, "--write", "--title", HOSTILE[0]) as address:
        page.set_viewport_size(PHONE)
        for path in PAGES:
            page.goto(f"{address}/{path}")
            assert not is_too_wide(page), f"{page.url} is wider than a phone"
        page.goto(f"{address}/keys?limit=500")
        links = page.locator("[data-row-link]")
        targets = [links.nth(n).get_attribute("href") for n in range(links.count())]
        assert len(targets) >= 3 * len(HOSTILE)
        for target in targets:
            page.goto(f"{address}{target}?show=result")
            page.locator(".copy").first.click()
            assert not is_too_wide(page), f"{page.url} is wider than a phone"
        assert findings(page) == []
        assert page.locator("main img, main script, main iframe").count() == 0


def test_the_page_of_a_key_tells_its_life(page: Page, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'life.db'}"
    outcomes: list[Exception | str] = [ValueError("<b>declined</b>"), "done"]

    def fail_then_complete() -> None:
        with Once(url, history="all") as once:

            def charge() -> str:
                outcome = outcomes.pop(0)
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            for _ in range(4):
                try:
                    once.run("order:1", charge)
                except ValueError:
                    continue

    in_thread(fail_then_complete)
    with console(url) as address:
        page.goto(f"{address}/keys")
        page.locator("[data-row-link]").first.click()
        events = page.locator(".timeline").first.locator("li:not(.planned)")
        expect(events).to_have_count(5)
        kinds = [(events.nth(n).get_attribute("class") or "").strip() for n in range(5)]
        assert kinds == ["claimed", "failed", "claimed", "completed", "replayed"]
        expect(events.nth(1)).to_contain_text("failed: ValueError: <b>declined</b>")
        expect(events.nth(4)).to_contain_text("replayed 2 times")
        expect(page.locator(".gap").last).to_contain_text("every 60 s")
        check_page(page, page.url)


def test_two_operators_decide_about_one_record(page: Page, store: str) -> None:
    with console(store, "--write") as address:
        page.goto(f"{address}/parked")
        card = page.locator("article", has_text="pay:ann").first
        assert page.context.browser is not None
        other = page.context.browser.new_page()
        other.goto(f"{address}/parked")
        _resolve(card, "Resolve: it was applied", "the bank confirmed it")
        expect(page.get_by_role("status")).to_contain_text("done. It is in the audit trail")
        assert page.url == f"{address}/parked", "the page and its filters survive the action"
        _resolve(other.locator("article", has_text="pay:ann").first, "Resolve: abandon it", "too late")
        expect(other.get_by_role("alert")).to_contain_text("changed in the meantime")
        other.goto(f"{address}/audit")
        assert other.locator("tbody tr").count() == 1
        expect(other.locator("tbody")).to_contain_text("the bank confirmed it")
        check_page(other, f"{address}/audit")
    assert in_thread(lambda: [entry.detail for entry in Once(store).audit()]) == ["applied"]


def _resolve(card: object, action: str, why: str) -> None:
    form = card.locator("details", has_text=action)  # type: ignore[attr-defined]
    form.locator("summary").click()
    form.get_by_label("Reason").fill(why)
    form.get_by_role("button", name=action).click()


def test_rows_are_selected_previewed_and_changed(page: Page, store: str) -> None:
    with console(store, "--write") as address:
        page.goto(f"{address}/keys?scope=shop%2Fcharge")
        expect(page.locator("[data-bulk]")).to_be_hidden()
        page.get_by_label("Select all rows of this page").check()
        expect(page.locator("[data-bulk-count]")).to_have_text("3 selected")
        page.get_by_role("button", name="Retry…").click()
        expect(page.locator("main")).to_contain_text("there is nothing to retry: it is COMPLETED")
        assert findings(page) == []
        page.get_by_label("Reason").fill("the cards work again")
        page.get_by_role("button", name="Retry 1").click()
        expect(page.get_by_role("status")).to_have_text("Retry: 1 done")
        assert page.url.endswith("/keys?scope=shop%2Fcharge")

        page.get_by_label("State").select_option("FAILED")  # a select applies at once
        page.wait_for_url(re.compile(r"state=FAILED"))
        assert "prefix=" not in page.url, "empty filters are left out"
        expect(page.locator("tbody tr")).to_have_count(1)
        page.reload()
        expect(page.get_by_label("State")).to_have_value("FAILED")


def test_many_records_are_changed_with_progress(page: Page, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'many.db'}?synchronous=NORMAL"
    in_thread(lambda: Once(url).map(str, range(250), key=lambda n: f"row:{n}", name="rows"))
    with console(url, "--write") as address:
        page.goto(f"{address}/keys?scope=default%2Frows")
        page.get_by_label("Action for all matching keys").select_option("forget")
        page.get_by_role("button", name="Preview…").click()
        page.get_by_label("Reason").fill("tidy up")
        page.get_by_role("button", name="Forget 250").click()
        expect(page.locator(".flash.done")).to_have_text("Forget: 250 done")
        expect(page.locator("main")).to_contain_text("No key matches")


def test_the_keyboard_the_theme_and_the_phone(page: Page, store: str) -> None:
    with console(store) as address:
        page.goto(f"{address}/keys")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        expect(page.locator("tr.current")).to_have_count(1)
        first = page.locator("tbody tr").first
        expect(first).to_have_class(re.compile("current"))
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/keys/[0-9a-f]{64}"))
        assert page.locator("form[method=post]").count() == 0, "it was started without --write"
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        assert findings(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("charge:1")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("charge:1")

        page.get_by_label("Switch between light and dark").click()
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark, "the choice is remembered"
        page.set_viewport_size(PHONE)
        menu = page.get_by_role("button", name="Menu")
        expect(page.locator("#menu")).to_be_hidden()
        menu.click()
        page.locator("#menu").get_by_role("link", name="Audit trail").click()
        expect(page.locator("h1")).to_have_text("Audit trail")


def test_the_overview_is_live_and_pauses(page: Page, store: str) -> None:
    with console(store) as address:
        page.goto(f"{address}/overview")
        parked = page.locator("a.figure", has_text="Parked").locator(".value")
        before = int(parked.inner_text())
        in_thread(lambda: _park_another(store))
        expect(parked).to_have_text(str(before + 1))
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # would refresh at once
        page.get_by_role("button", name="Resume").click()
        assert requests == []
        with page.expect_request(re.compile("/overview")):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def _park_another(store: str) -> None:
    once = Once(store, app="shop")

    @once(key="late:{n}", name="late", after_crash="park")
    def late(n: int) -> None:
        raise TimeoutError(n)

    attempt(late, 1)
    once.close()


def test_a_token_is_asked_for_and_signs_in(page: Page, store: str) -> None:
    token = "t" * (2 * MIN_SECRET)
    with console(store, ONCEWARD_CONSOLE_TOKEN=token) as address:
        page.goto(f"{address}/keys?state=PARKED")
        assert "/sign-in" in page.url
        assert findings(page) == []
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{address}/keys?state=PARKED")
        expect(page.locator("h1")).to_have_text("Keys")
