"""The built site behind a local server, and what a browser must find on each of its pages."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Literal

from playwright.sync_api import Page

from docs.sitebuild.__main__ import SITE
from docs.sitebuild.assemble import ROOT, sources
from tests.console.served import DESKTOP, PHONE, findings

Scheme = Literal["light", "dark"]
WIDTHS = {"desktop": DESKTOP, "phone": PHONE}
SPILLING = """() => [...document.querySelectorAll('.md-content *')].filter((element) => {
    const box = element.getBoundingClientRect();
    const scrolled = element.closest('.md-typeset__scrollwrap, pre, code, .tabbed-labels, .tabbed-content');
    return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !scrolled;
}).map((element) => element.outerHTML.slice(0, 120))"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serve files without logging each request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
        """Log nothing: a missing file is an error in the browser's console."""


def built_site() -> Path:
    """Return the folder of the site. Build it if there is none, or if a page is newer."""
    index = SITE / "index.html"
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes: one of them builds
        if not index.exists() or index.stat().st_mtime < max(path.stat().st_mtime for path in sources()):
            subprocess.run([sys.executable, "-m", "docs.sitebuild"], cwd=ROOT, check=True, capture_output=True)
    return SITE


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine. Yield the address, without the last slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def problems(page: Page, address: str, width: str, scheme: Scheme) -> list[str]:
    """Open a page and return what is wrong with it: too wide, in the wrong colours, serious findings of axe."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size(WIDTHS[width])
    answer = page.goto(address)
    if answer is None or answer.status != 200:
        return [f"{address} was not found"]
    where = f"{address} ({width}, {scheme})"
    found = [f"{where} is too wide: {element}" for element in page.evaluate(SPILLING)[:3]]
    shown = page.locator("body").get_attribute("data-md-color-scheme")
    if shown != {"light": "default", "dark": "slate"}[scheme]:
        found.append(f"{where} is shown in the scheme {shown}")
    if page.locator("h1").count() != 1:
        found.append(f"{where} has {page.locator('h1').count()} headings of the first level")
    return [*found, *(f"{width}, {scheme}: {finding}" for finding in findings(page))]
