"""Draw the charts of the speed page as SVG: every case that has a bar, including those that Onceward loses."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

SPEED = Path(__file__).resolve().parents[1] / "explain" / "speed.md"
ROW = re.compile(r"^\| (?P<case>[^|]+?) \| (?P<sense>[≥≤]) [^|]+ \| (?P<ratio>[\d.]+) \(", re.MULTILINE)
CHARTS = {
    "speed-faster": ("Times as fast as the other side (longer is better)", "≥"),
    "speed-longer": ("Times as long as the other side takes (shorter is better)", "≤"),
}
INKS = {"light": ("#1e293b", "#6366f1", "#ea580c", "#94a3b8"), "dark": ("#e2e8f0", "#818cf8", "#fb923c", "#64748b")}
BAR, GAP, LABEL, WIDTH = 18, 10, 380, 760


class Bar(NamedTuple):
    """One case and its ratio."""

    case: str
    ratio: float


def bars(sense: str, text: str) -> list[Bar]:
    """Return the cases of the page whose bar has this sign (≥ or ≤), in the order of the page."""
    return [Bar(row["case"], float(row["ratio"])) for row in ROW.finditer(text) if row["sense"] == sense]


def pictures() -> dict[str, str]:
    """Return the charts: path on the site and SVG."""
    text = SPEED.read_text(encoding="utf-8")
    return {
        f"pictures/{name}-{scheme}.svg": draw(title, bars(sense, text), scheme, slower_if_above=sense == "≤")
        for name, (title, sense) in CHARTS.items()
        for scheme in INKS
    }


def draw(title: str, shown: list[Bar], scheme: str, *, slower_if_above: bool) -> str:
    """Return a chart with one horizontal bar per case. The vertical line at 1 means: as fast as the other side."""
    ink, good, bad, line = INKS[scheme]
    height = 50 + len(shown) * (BAR + GAP)
    scale = (WIDTH - LABEL - 60) / max(1.0, *(bar.ratio for bar in shown))
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"'
    parts = [
        f'{start} font-family="system-ui, sans-serif" font-size="13" fill="{ink}"><title>{escape(title)}</title>',
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for number, bar in enumerate(shown):
        top = 36 + number * (BAR + GAP)
        fill = bad if (bar.ratio > 1) == slower_if_above and bar.ratio != 1 else good
        end = LABEL + bar.ratio * scale
        parts.append(f'<text x="0" y="{top + 13}">{escape(bar.case)}</text>')
        parts.append(f'<rect x="{LABEL}" y="{top}" width="{end - LABEL:.1f}" height="{BAR}" rx="3" fill="{fill}"/>')
        parts.append(f'<text x="{end + 6:.1f}" y="{top + 13}">{bar.ratio:g} ×</text>')
    one = LABEL + scale
    parts.append(
        f'<line x1="{one:.1f}" y1="30" x2="{one:.1f}" y2="{height - 8}" stroke="{line}" stroke-dasharray="4 3"/>'
    )
    return "\n".join([*parts, "</svg>", ""])
