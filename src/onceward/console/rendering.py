"""The Jinja environment of the console: everything is escaped, undefined names are errors."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import charts, format, state_machines

TEMPLATES = Environment(
    loader=PackageLoader("onceward.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters.update(
    iso=format.iso_time,
    clock=format.clock_time,
    ago=format.relative_time,
    span=format.exact_span,
    rough_span=format.rough_span,
    number=format.exact_number,
    percent=format.percentage,
    printable=format.printable,
)
TEMPLATES.globals.update(
    bar_chart=charts.bar_chart,
    sparkline=charts.sparkline,
    record_machine=state_machines.record_machine,
    attempt_machine=state_machines.attempt_machine,
)
