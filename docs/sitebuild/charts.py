"""Draw the charts of the speed page as SVG, from the figures in its tables."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

SPEED = Path(__file__).resolve().parents[1] / "explain" / "speed.md"
ROW = re.compile(r"^\| (?P<case>[^|]+?) \| [≥≤] [\d.]+ × \| (?P<figure>[\d.]+)", re.MULTILINE)
CHARTS = {
    "speed-peers-redis": (
        "Times as fast as the peer, on Redis",
        r"redis 64 (threads|tasks), .*against (idemkit|powertools|dogpile redis|exactly_once)",
    ),
    "speed-peers-postgres": (
        "Times as fast as the peer, on PostgreSQL",
        r"postgres 64 (threads|tasks), .*against (idemkit|DBOS|exactly_once)",
    ),
    "speed-http": ("Times as fast as the peer, over HTTP", r"http, fresh, against (idemkit|asgi|fastapi|idemptx)"),
}
COLOURS = {"light": ("#1e293b", "#6366f1", "#94a3b8"), "dark": ("#e2e8f0", "#818cf8", "#64748b")}
BAR, GAP, LABEL, WIDTH = 18, 10, 330, 720


class Bar(NamedTuple):
    """One case and its ratio."""

    case: str
    ratio: float


def bars(pattern: str, text: str) -> list[Bar]:
    """Return the cases of the speed page that match, in the order of the page."""
    return [Bar(row["case"], float(row["figure"])) for row in ROW.finditer(text) if re.search(pattern, row["case"])]


def pictures() -> dict[str, str]:
    """Return the charts: path on the site and SVG."""
    text = SPEED.read_text(encoding="utf-8")
    return {
        f"pictures/{name}-{scheme}.svg": draw(title, bars(pattern, text), scheme)
        for name, (title, pattern) in CHARTS.items()
        for scheme in COLOURS
    }


def draw(title: str, shown: list[Bar], scheme: str) -> str:
    """Return a chart with one horizontal bar per case. The vertical line at 1 means: as fast as the peer."""
    ink, fill, line = COLOURS[scheme]
    height = 50 + len(shown) * (BAR + GAP)
    scale = (WIDTH - LABEL - 60) / max(1.0, *(bar.ratio for bar in shown))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{ink}"><title>{escape(title)}</title>'
        ),
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for number, bar in enumerate(shown):
        top = 36 + number * (BAR + GAP)
        parts.append(f'<text x="0" y="{top + 13}">{escape(bar.case)}</text>')
        parts.append(
            f'<rect x="{LABEL}" y="{top}" width="{bar.ratio * scale:.1f}" height="{BAR}" rx="3" fill="{fill}"/>'
        )
        parts.append(f'<text x="{LABEL + bar.ratio * scale + 6:.1f}" y="{top + 13}">{bar.ratio:g} ×</text>')
    one = LABEL + scale
    parts.append(
        f'<line x1="{one:.1f}" y1="30" x2="{one:.1f}" y2="{height - 8}" stroke="{line}" stroke-dasharray="4 3"/>'
    )
    return "\n".join([*parts, "</svg>", ""])
