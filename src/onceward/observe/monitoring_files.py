"""The alert file for Prometheus, the dashboard for Grafana and the runbooks, which are shipped with the package."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from onceward import errors
from onceward.protocol.duration import format_duration
from onceward.protocol.operation_names import ALERT, SCHEDULE_PREFIX

from .rules import RULES, RUNBOOK_COMMAND, todo_text
from .thresholds import DURATIONS, Thresholds

SCOPE_LABEL: Final = "{{ $labels.scope }}"
"""How a text of an alert refers to the alert's scope."""

RUNBOOK_SECTION: Final = "## "

_PLACEHOLDER = re.compile(r"@([a-z_.]+)@")
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:(?P<page>[a-z-]+)\.md)?(?:#(?P<anchor>[a-z-]+))?\)")


def prometheus_rules(thresholds: Thresholds) -> str:
    """Return the alert file with these thresholds."""
    values = {name: _number(name, getattr(thresholds, name)) for name in Thresholds.__struct_fields__}
    values["watched"] = _watched(thresholds)
    for rule in RULES:
        values[f"{rule.name}.todo"] = todo_text(rule, thresholds, SCOPE_LABEL).replace("'", "''")
        values[f"{rule.name}.runbook"] = f"{RUNBOOK_COMMAND} {rule.name.replace('_', '-')}"
    return _PLACEHOLDER.sub(lambda found: values[found[1]], _text("alerts.yml"))


def grafana_dashboard() -> str:
    """Return the dashboard as JSON to import."""
    return _text("dashboard.json")


def runbooks() -> dict[str, str]:
    """Return the text of each runbook, by its name, in the order of the page. Links are written for a terminal."""
    _, *sections = re.split(f"^{RUNBOOK_SECTION}", _LINK.sub(_link_text, _text("runbooks.md")), flags=re.MULTILINE)
    return {section.partition("\n")[0].strip(): section.partition("\n")[2].strip() for section in sections}


def _link_text(link: re.Match[str]) -> str:
    """Return a command that prints the linked runbook, or the text of the link and where the linked page is."""
    text, page, anchor = link["text"], link["page"], link["anchor"]
    if not page:
        return f"`{RUNBOOK_COMMAND} {anchor}`"
    return f"{text} ({errors.DOCS_URL}howto/{page}.html)" if errors.DOCS_URL else f"{text} (docs/howto/{page}.md)"


def _number(name: str, value: object) -> str:
    if name in DURATIONS and isinstance(value, int):
        return format_duration(value)
    return f"{value:.12g}" if isinstance(value, int | float) else ""


def _watched(thresholds: Thresholds) -> str:
    """Return the label matcher for scopes whose replay rate is meaningful."""
    names = [f"{re.escape(SCHEDULE_PREFIX)}.*", ALERT]
    names += [_escaped(name) for name in thresholds.replays_expected if "/" not in name]
    whole = [_escaped(name) for name in thresholds.replays_expected if "/" in name]
    pattern = "|".join([f"[^/]*/({'|'.join(names)})(#.*)?", *whole])
    return f'scope!~"{pattern}"'


_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _escaped(name: str) -> str:
    """Escape a name for a regular expression of Prometheus inside double quotes."""
    plain = _SPECIAL.sub(lambda found: f"\\{found[0]}", name)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _text(name: str) -> str:
    return files("onceward.observe").joinpath("shipped", name).read_text(encoding="utf-8")
