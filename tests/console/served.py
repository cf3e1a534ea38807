"""A console in a process of its own, and a browser that checks every page it opens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize

from onceward.console.page import built_in_pages

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PAGES = [page.name for page in built_in_pages() if page.group]
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=800)
SERIOUS = ("serious", "critical")


@contextmanager
def process(*command: str, **environment: str) -> Iterator[str]:
    """Start a command that prints the address of its console. Yield the address, without the last slash."""
    child = subprocess.Popen(
        [sys.executable, "-u", "-m", *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/", line):
                yield found[1]
                return
        raise AssertionError("".join(lines))
    finally:
        child.terminate()
        child.communicate(timeout=60)


@contextmanager
def console(store: str, *options: str, **environment: str) -> Iterator[str]:
    """Run `onceward console` on a store."""
    with process("onceward.cli", "console", "--port", "0", "--store", store, *options, **environment) as address:
        yield address


def in_thread(work: Callable[[], T]) -> T:
    """Call it in another thread: playwright runs an event loop in this one, where `Once` refuses to block."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def is_ready(page: Page) -> bool:
    """Return whether the page has applied its scripts."""
    return bool(page.evaluate("document.readyState === 'complete' && 'htmx' in window"))


def findings(page: Page) -> list[str]:
    """Return the serious findings of axe, each with the element that it is about."""
    violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in violations if one["impact"] in SERIOUS
    ]


def is_too_wide(page: Page) -> bool:
    """Return whether the page scrolls sideways. Tables scroll inside their own boxes."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def check_page(page: Page, address: str) -> None:
    """Open a page on a light desktop and on a dark phone, and check that it can be used."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESKTOP)
    answer = page.goto(address)
    assert answer is not None
    assert answer.status == 200, address
    assert page.locator("h1").count() == 1
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert not is_too_wide(page), f"{address} is wider than a phone"
    assert findings(page) == []
    assert is_ready(page)
