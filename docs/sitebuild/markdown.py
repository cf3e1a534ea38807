"""Change the Markdown of GitHub into the Markdown of the site: links, lists and pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from textwrap import indent

FENCE = re.compile(r"^ *(```+|~~~+)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
TABS = re.compile(r"^<!-- tabs -->$(.*?)^<!-- /tabs -->$", re.DOTALL | re.MULTILINE)
ITEM = re.compile(r"^( *)(?:[-*+]|\d+\.) ")
NESTED = 4  # spaces that Python-Markdown wants in front of what belongs to a list item


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to each stretch of text outside of fenced code blocks."""
    parts: list[str] = []
    prose: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if not fence and mark:
            parts.append(change("".join(prose)))
            prose = []
            fence = mark[1]
            parts.append(line)
        elif fence:
            parts.append(line)
            if mark and mark[1] == fence:
                fence = ""
        else:
            prose.append(line)
    parts.append(change("".join(prose)))
    return "".join(parts)


def rewrite_links(text: str, source: str, places: Mapping[str, str]) -> str:
    """Point relative links at the pages and pictures of the site. A link to a file that is not on the site becomes plain text.

    `source` is the path of the page in the repository. `places` maps paths in the repository to paths on the site.
    """
    here = os.path.dirname(places[source])

    def replace(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if target.startswith("#") or re.match(r"[a-z]+:", target):
            return match[0]
        path, hash_mark, anchor = target.partition("#")
        place = places.get(os.path.normpath(os.path.join(os.path.dirname(source), path)))
        return label if place is None else f"{mark}[{label}]({os.path.relpath(place, here or '.')}{hash_mark}{anchor})"

    return outside_fences(text, lambda prose: LINK.sub(replace, prose))


def separate_lists(text: str) -> str:
    """Add what Python-Markdown needs and GitHub does not: a blank line in front of a list or table, indents of four."""
    lines: list[str] = []
    previous = ""
    in_list = in_fence = False
    for line in text.splitlines():
        item = ITEM.match(line)
        starts_block = item is not None or line.startswith("|")
        if not in_fence and previous.strip() and starts_block and not in_list and not previous.startswith(("|", "#")):
            lines.append("")
        if not in_fence:
            in_list = item is not None or (
                in_list and (not line.strip() or line.startswith("  ") or bool(previous.strip()))
            )
        lines.append(_indented(line) if in_list else line)
        if FENCE.match(line):
            in_fence = not in_fence
        previous = line
    return "\n".join(lines) + "\n"


def _indented(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * NESTED + line.lstrip(" ") if 0 < indent < NESTED else line


def make_tabs(text: str) -> str:
    """Turn `<!-- tabs -->`, parts that begin with a bold line, and `<!-- /tabs -->` into tabs.

    GitHub shows the parts one below the other.
    """

    def replace(match: re.Match[str]) -> str:
        _, *parts = re.split(r"^\*\*(.+)\*\*$", match[1], flags=re.MULTILINE)
        tabs = zip(parts[::2], parts[1::2], strict=True)
        return "\n".join(f'=== "{title}"\n\n{indent(body.strip(), " " * NESTED)}\n' for title, body in tabs)

    return TABS.sub(replace, text)


def title_of(text: str) -> str:
    """Return the first heading, without code marks."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1].replace("`", "") if heading else ""


def name_errors(text: str) -> str:
    """Give each row of the table of errors an anchor, so that an error can name it: `errors#lease-lost`."""
    return re.sub(
        r"^\| `(\w+)` \| `(\w+)` \|",
        lambda row: f'| <a id="{row[2].replace("_", "-")}"></a>`{row[1]}` | `{row[2]}` |',
        text,
        flags=re.MULTILINE,
    )
