"""The Jinja environment of the console: everything is escaped, undefined names are errors."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import charts, state_machines, text_format

TEMPLATES = Environment(
    loader=PackageLoader("onceward.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters.update(
    iso=text_format.iso_time,
    clock=text_format.clock_time,
    ago=text_format.relative_time,
    span=text_format.exact_span,
    rough_span=text_format.rough_span,
    number=text_format.exact_number,
    percent=text_format.percentage,
    printable=text_format.printable,
    prose=text_format.prose,
)
TEMPLATES.tests["ends_with"] = str.endswith
TEMPLATES.globals.update(
    bar_chart=charts.bar_chart,
    sparkline=charts.sparkline,
    record_machine=state_machines.record_machine,
    attempt_machine=state_machines.attempt_machine,
)
