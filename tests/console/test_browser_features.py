"""The pages of sagas, schedules, states, dead letters and people, in a real browser, with a console of its own.

Apart from `test_browser_actions.py`, whose tests change the records.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.served import check_page
from tests.console.test_browser_actions import Shop, shop

__all__ = ["shop"]  # a fixture

FEATURES = {
    "schedules": "nightly",
    "sagas": "booking:1",
    "states?scope=shop/trucks": "truck 7",
    "dead-letters": "m-17",
    "people": "Ana Schmidt",
}
LINKS = {"schedules": "nightly", "failures": "RuntimeError", "sagas": "booking:1"}


@pytest.mark.timeout(300)
def test_the_pages_of_features_can_be_used(shop: Shop) -> None:
    """Storms of systems leave few of these behind."""
    page = shop.open("ann", "overview")
    for path, text in FEATURES.items():
        check_page(page, f"{shop.address}/{path}")
        expect(page.locator("main")).to_contain_text(text)
    for path, link in LINKS.items():
        page.goto(f"{shop.address}/{path}")
        page.locator("main").get_by_role("link", name=link, exact=True).first.click()
        expect(page.locator("h1")).to_have_text(link)
        check_page(page, page.url)
