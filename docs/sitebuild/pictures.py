"""Render Mermaid blocks to SVG files at build time: one for the light and one for the dark scheme."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from types import ModuleType

sys.modules.setdefault("novasvg", ModuleType("novasvg"))  # mmdr's rasteriser: not needed for SVG, and noisy at exit

from mmdr import render  # noqa: E402 (after the line above)

BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CAPTION = re.compile(r"^ *%% (.+)$", re.MULTILINE)
CHART = re.compile(r"^<!-- chart: ([a-z-]+): (.+) -->$", re.MULTILINE)
STYLE = "text, tspan { font-size: 14px !important; font-family: system-ui, sans-serif !important }"  # fonts differ between machines
SCHEMES = {
    "light": {
        "primaryColor": "#eef2ff",
        "primaryTextColor": "#1e1b4b",
        "primaryBorderColor": "#6366f1",
        "lineColor": "#475569",
        "textColor": "#1e293b",
        "edgeLabelBackground": "#ffffff",
        "noteBkgColor": "#fef9c3",
        "noteTextColor": "#422006",
        "noteBorderColor": "#ca8a04",
        "clusterBkg": "#f8fafc",
        "clusterBorder": "#cbd5e1",
        "signalColor": "#334155",
        "signalTextColor": "#1e293b",
    },
    "dark": {
        "primaryColor": "#1e293b",
        "primaryTextColor": "#e2e8f0",
        "primaryBorderColor": "#818cf8",
        "lineColor": "#94a3b8",
        "textColor": "#e2e8f0",
        "edgeLabelBackground": "#111318",
        "noteBkgColor": "#3b3413",
        "noteTextColor": "#fef3c7",
        "noteBorderColor": "#a16207",
        "clusterBkg": "#171a21",
        "clusterBorder": "#475569",
        "signalColor": "#cbd5e1",
        "signalTextColor": "#e2e8f0",
    },
}


def draw_pictures(text: str, page: str, pictures: dict[str, str]) -> str:
    """Replace each Mermaid block by two images, and add their SVG to `pictures`.

    The first comment of the block (`%% …`) is the text for readers who do not see the picture. `<!-- chart: name: text -->` stands for a chart.
    """
    here = os.path.dirname(page)

    def replace(match: re.Match[str]) -> str:
        source = match[1]
        caption = CAPTION.search(source)
        name = hashlib.sha256(source.encode()).hexdigest()[:12]
        for scheme in SCHEMES:
            pictures[f"pictures/{name}-{scheme}.svg"] = svg(source, scheme)
        return images(name, caption[1] if caption else "Diagram", here)

    return CHART.sub(lambda chart: images(chart[1], chart[2], here), BLOCK.sub(replace, text))


def images(name: str, alternative: str, here: str) -> str:
    """Return both versions of a picture; the theme shows one of them."""
    return "\n".join(
        f"![{alternative}]({os.path.relpath(f'pictures/{name}-{scheme}.svg', here or '.')}#only-{scheme}){{ .picture }}"
        for scheme in SCHEMES
    )


def svg(source: str, scheme: str) -> str:
    """Return the picture in its natural size, with text that is a little smaller than its boxes were measured for."""
    settings = {"theme": "base", "themeVariables": {**SCHEMES[scheme], "fontFamily": "sans-serif"}}
    drawn = str(render(f"%%{{init: {json.dumps(settings)}}}%%\n{source}").svg())
    width, height = drawn.partition('viewBox="')[2].partition('"')[0].split()[2:]
    sized = drawn.replace('width="100%"', f'width="{float(width):.0f}" height="{float(height):.0f}"', 1)
    return sized.replace("</svg>", f"<style>{STYLE}</style></svg>")
