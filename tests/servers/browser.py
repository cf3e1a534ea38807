"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Dialog, Page, sync_playwright

from .process import missing

HOW = "apt-get install chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def opened() -> Iterator[Page]:
    """An empty page. Errors of its scripts, and dialogs that nobody asked for, fail the test."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("chromium", HOW)
    troubles: list[str] = []

    def refuse(dialog: Dialog) -> None:
        troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
            page.on("console", lambda said: troubles.append(f"console: {said.text}") if said.type == "error" else None)
            page.on("dialog", refuse)
            yield page
        finally:
            browser.close()
    assert troubles == []
