"""The site in a real browser: on a desktop and on a phone, light and dark, nothing overflows and axe is content."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.served_site import built_site, problems, serving
from tests.servers.browser import opened

CHOSEN = [
    "index.html",  # a picture, wide tables
    "start/fastapi.html",
    "howto/claims.html",  # tabs
    "howto/crashes.html",  # a drawing
    "howto/errors.html",  # the widest table
    "explain/speed.html",  # charts
    "reference/api/onceward.locks.html",
    "reference/cli/commands.html",
]
PATIENCE = 60_000  # ms; the machine may be busy
ALL = os.environ.get("ONCEWARD_SITE_PAGES") == "all"
"""`make soak` looks at every page, in both schemes at both widths."""


def chosen_pages(site: Path) -> list[str]:
    if not ALL:
        return CHOSEN
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")


@pytest.mark.finding("N59")
@pytest.mark.timeout(3600)
def test_pages_fit_on_a_screen_and_are_accessible() -> None:
    site = built_site()
    found: list[str] = []
    with serving(site) as address, opened() as page:
        for path in chosen_pages(site):
            found += problems(page, f"{address}/{path}", "desktop", "light")
            found += problems(page, f"{address}/{path}", "phone", "dark")
            if ALL:
                found += problems(page, f"{address}/{path}", "desktop", "dark")
                found += problems(page, f"{address}/{path}", "phone", "light")
    assert found == []


@pytest.mark.finding("N59")
@pytest.mark.timeout(900)  # it may have to build the site first
def test_the_search_finds_a_page_and_the_tabs_switch() -> None:
    with serving(built_site()) as address, opened() as page:
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/howto/claims.html")
        block = page.locator(".tabbed-block", has_text="AsyncOnce").first
        assert not block.is_visible()
        page.get_by_text("Async", exact=True).first.click()
        block.wait_for(state="visible")
        page.keyboard.press("Control+k")
        page.get_by_placeholder("Search").first.fill("derived key")
        page.get_by_text(re.compile(r"\d+ results")).first.wait_for(state="visible")
