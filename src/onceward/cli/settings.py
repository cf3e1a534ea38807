"""Settings and where they come from: flag > environment > file > default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onceward.errors import ConfigurationError
from onceward.observe.rules import Thresholds, thresholds_of
from onceward.operations.settings_file import OPERATIONS, found_in, operations_in
from onceward.operations.table import Operations
from onceward.protocol.duration import microseconds
from onceward.protocol.suggest import did_you_mean
from onceward.stores.registry import DEFAULT, ENVIRONMENT

DEFAULTS: dict[str, str] = {
    "store": DEFAULT,
    "app": "default",
    "tenant": "",
    "scope": "",
    "output": "auto",
    "window": "24h",
    "lease": "10m",
    "wait": "30s",
    "after_crash": "rerun",
}
VARIABLES = {name: ENVIRONMENT if name == "store" else f"ONCEWARD_{name.upper()}" for name in DEFAULTS}
SPANS = "retry_spans"
"""A table, so it lives in a file only: for each scope or operation, how long its sender redelivers."""

RULES = "rules"
"""As above: the thresholds of `onceward check`, each with a default."""

MAY_BE_EMPTY = ("tenant", "scope")  # which then mean: none, and all
CHOICES = {"output": ("auto", "table", "json"), "after_crash": ("rerun", "park")}

_PASSWORD = re.compile(r"(://[^:/?#@\s]*:)\S*@")
_SECRET = re.compile(r"([?&][^=&\s]*(?:pass|secret|token|key|pwd)[^=&]*=)[^&\s]*", re.IGNORECASE)


class Setting(NamedTuple):
    """A value and who said so."""

    value: str
    source: str


class Filed(NamedTuple):
    """What a file says, and its name."""

    settings: dict[str, str]
    spans: dict[str, str]
    file: str


def effective(flags: Mapping[str, str | None]) -> dict[str, Setting]:
    """Every setting, each from the nearest place that has it. An empty variable counts as none."""
    filed, _, file = from_file(Path.cwd())
    found = {}
    for name, default in DEFAULTS.items():
        flag, variable = flags.get(name), VARIABLES[name]
        if flag is not None:
            found[name] = Setting(flag, f"--{name.replace('_', '-')}")
        elif os.environ.get(variable):
            found[name] = Setting(os.environ[variable], f"${variable}")
        elif name in filed:
            found[name] = Setting(filed[name], file)
        else:
            found[name] = Setting(default, "default")
        _check(name, found[name])
    return found


def retry_spans(flags: Mapping[str, str]) -> dict[str, Setting]:
    """The retry spans that are declared, by scope or operation. A word of their own wins over the operations' table."""
    _, filed, file = from_file(Path.cwd())
    spans = {
        one.name: Setting(span if isinstance(span, str) else f"{span}s", file)
        for one in declared()
        if (span := one.settings.get("retry_span")) is not None
    }
    spans |= {name: Setting(value, file) for name, value in filed.items()}
    return spans | {name: Setting(value, "--retry-span") for name, value in flags.items()}


def thresholds() -> Thresholds:
    """The thresholds that the file of the current directory declares."""
    table, file = found_in(Path.cwd())
    _checked_table(table, file)  # a mistyped heading must not look like a file without rules
    rules = table.get(RULES, {})
    if not isinstance(rules, dict):
        raise ConfigurationError(f"{file}: {RULES} is no table", hint=f"write [{RULES}] and claim_errors = 10")
    return thresholds_of(rules, f"{file} [{RULES}]" if file else RULES)


def declared() -> Operations:
    """The operations that the file of the current directory declares."""
    table, file = found_in(Path.cwd())
    _checked_table(table, file)  # a mistyped heading must not look like a file without operations
    return Operations.of_file(operations_in(table, file), file)


def from_file(folder: Path) -> Filed:
    """The settings of the first file that has any, in the current directory: there, a store's relative path starts."""
    table, name = found_in(folder)
    return Filed(_checked_table(table, name), _checked_spans(table, name), name)


def _checked_table(table: Mapping[str, Any], file: str) -> dict[str, str]:
    settings = {}
    for written, value in table.items():
        name = written.replace("-", "_")
        if name in (SPANS, OPERATIONS, RULES):
            continue
        if name not in DEFAULTS:
            raise ConfigurationError(
                f"{file}: there is no setting {written!r}",
                hint=did_you_mean(name, [*DEFAULTS, SPANS, OPERATIONS, RULES], "settings are"),
            )
        if not isinstance(value, str):
            raise ConfigurationError(f"{file}: {written} must be text, not {value!r}", hint=f'write {written} = "…"')
        settings[name] = value
    return settings


def _checked_spans(table: Mapping[str, Any], file: str) -> dict[str, str]:
    spans = table.get(SPANS, table.get(SPANS.replace("_", "-"), {}))
    if not isinstance(spans, dict) or not all(isinstance(value, str) for value in spans.values()):
        raise ConfigurationError(
            f"{file}: {SPANS} is no table of scopes and durations", hint=f'write {SPANS} = {{ "shop/charge" = "3d" }}'
        )
    for name, value in spans.items():
        microseconds(value, f"{file}: the retry span of {name}")
    return spans


def _check(name: str, setting: Setting) -> None:
    allowed = CHOICES.get(name)
    if allowed and setting.value not in allowed:
        raise ConfigurationError(
            f"{name} cannot be {setting.value!r} (from {setting.source})", hint="choose one of: " + ", ".join(allowed)
        )
    if not setting.value and name not in MAY_BE_EMPTY:
        raise ConfigurationError(f"{name} is empty (from {setting.source})")


def masked(text: str) -> str:
    """A URL, or a message that quotes some, without passwords. A password ends at the last @: it may hold others."""
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))
