"""What the build adds to the finished site, and what it checks there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE
)
IN_CSS = re.compile(r"url\([\"']?((?:https?:)?//[^\"')]+)|@import\s+[\"']((?:https?:)?//[^\"']+)")
NOT_LOADED = re.compile(r"<link\b[^>]*rel=[\"']?canonical[^>]*>", re.IGNORECASE)
SUMMARY = "Onceward is a Python library: work that is delivered at least once takes effect once per key."


def check_offline(site: Path) -> list[str]:
    """Return a line for each address outside of the site that a page loads by itself."""
    problems = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = NOT_LOADED.sub("", path.read_text(encoding="utf-8"))
        found = LOADED.findall(text) if path.suffix == ".html" else ["".join(match) for match in IN_CSS.findall(text)]
        problems += [
            f"{path.relative_to(site)} loads {address}: the site must work without a network"
            for address in sorted(set(found))
        ]
    return problems


def write_llms_files(site: Path, pages: Mapping[str, str]) -> None:
    """Write `llms.txt` (a list of the pages) and `llms-full.txt` (all hand-written pages in one file)."""
    written = {page: text for page, text in pages.items() if not page.startswith(("evidence/", "reference/api/"))}
    lines = ["# Onceward", "", f"> {SUMMARY}", ""]
    lines += [f"- [{_title(text) or page}]({page.removesuffix('.md')}.html)" for page, text in written.items()]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(text.strip() for text in written.values()) + "\n", encoding="utf-8")


def _title(text: str) -> str:
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1] if heading else ""
