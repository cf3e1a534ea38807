"""Charts as SVG, drawn by the server. Colours come from classes, so that the style sheet decides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 720, 160
BASE = 18  # below the bars: labels of the time axis
TOP = 14  # above the bars: the label of the scale


def bar_chart(labels: Sequence[str], series: Mapping[str, Sequence[int]], title: str, every: int = 6) -> Markup:
    """Return stacked bars: one bar per label, one class per series. `every` is how many bars share an axis label."""
    totals = [sum(values[n] for values in series.values()) for n in range(len(labels))]
    highest = max(totals, default=0) or 1
    step = WIDTH / max(len(labels), 1)
    room = HEIGHT - BASE - TOP
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">').format(
            WIDTH, HEIGHT, _summary(title, labels, series)
        ),
        Markup('<line class="grid" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(WIDTH, TOP),
        Markup('<line class="grid" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(WIDTH, TOP + room / 2),
        Markup('<line class="axis" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(WIDTH, HEIGHT - BASE),
    ]
    for n, label in enumerate(labels):
        below = 0.0
        spoken = ", ".join(f"{values[n]:,} {name}" for name, values in series.items() if values[n])
        parts.append(Markup("<g><title>{}: {}</title>").format(label, spoken or "nothing"))
        parts.append(
            Markup('<rect class="slot" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>').format(
                n * step, TOP, step, room
            )
        )
        for name, values in series.items():
            size = room * values[n] / highest
            if values[n]:
                size = max(size, 1.5)  # one event in a thousand stays visible
                parts.append(
                    Markup('<rect class="series-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
                        name, n * step + step * 0.12, HEIGHT - BASE - below - size, step * 0.76, size
                    )
                )
            below += size
        parts.append(Markup("</g>"))
    parts.append(Markup("</svg>"))
    axis = Markup("").join(
        Markup("<span>{}</span>").format(label if n % every == 0 else "") for n, label in enumerate(labels)
    )
    scale = Markup('<span class="scale">{:,}</span>').format(highest if any(totals) else 0)
    return Markup('<div class="chart-box">{}{}<div class="chart-axis">{}</div></div>').format(
        scale, Markup("").join(parts), axis
    )


def _summary(title: str, labels: Sequence[str], series: Mapping[str, Sequence[int]]) -> str:
    sums = ", ".join(f"{sum(values):,} {name}" for name, values in series.items())
    return f"{title}, {labels[0]} to {labels[-1]}: {sums}" if labels else title


def sparkline(values: Sequence[int], name: str, label: str = "") -> Markup:
    """Return a small line without axes, for a table cell."""
    highest = max(values, default=0) or 1
    step = 100 / max(len(values) - 1, 1)
    points = " ".join(f"{n * step:.1f},{19 - 18 * value / highest:.1f}" for n, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 100 20" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<polyline class="line-{}" points="{}"/></svg>'
    ).format(escape(label), name, points)
