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
    """Open an empty page. Script errors and unexpected dialogs fail the test."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing("chromium", HOW)
    errors: list[str] = []

    def refuse(dialog: Dialog) -> None:
        errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.on("pageerror", lambda error: errors.append(f"error: {error}"))
            page.on(
                "console",
                lambda line: (
                    errors.append(f"console: {line.text} {line.location['url']}") if line.type == "error" else None
                ),
            )
            page.on("dialog", refuse)
            yield page
        finally:
            browser.close()
    assert errors == [], errors
