"""Take the pictures of the console for the docs: `make pictures`.

It fills a store with a day of a shop, opens the console in chromium, and writes PNG files to `docs/pictures`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page

from tests.console.day import fill
from tests.console.served import ROOT, console, in_thread
from tests.servers.browser import opened

FOLDER = ROOT / "docs/pictures"


class Picture(NamedTuple):
    """One picture: which page, on how large a screen, in which colours."""

    name: str
    path: str
    width: int = 1180
    height: int = 800
    scheme: Any = "light"


PICTURES = (
    Picture("console-overview", "overview"),
    Picture("console-key", "keys?prefix=payout:1042", height=860),
    Picture("console-parked-dark", "parked", height=640, scheme="dark"),
    Picture("console-phone", "parked", 390, 800),
    Picture("console-phone-dark", "overview", 390, 800, "dark"),
)


def take(page: Page, address: str, picture: Picture, folder: Path) -> None:
    page.set_viewport_size({"width": picture.width, "height": picture.height})
    page.emulate_media(color_scheme=picture.scheme, reduced_motion="reduce")
    page.goto(f"{address}/{picture.path}")
    if "prefix=" in picture.path:
        page.locator("[data-row-link]").first.click()
        page.locator(".timeline").first.wait_for()
    path = folder / f"{picture.name}.png"
    page.screenshot(path=path)
    print(path)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="onceward-pictures-") as temporary:
        url = f"sqlite:///{temporary}/shop.db"
        with opened() as page:
            in_thread(lambda: fill(url))
            with console(url, "--write") as address:
                for picture in PICTURES:
                    take(page, address, picture, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
