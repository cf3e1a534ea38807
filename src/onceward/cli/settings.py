"""Settings and their sources: flag > environment > file > default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onceward.errors import ConfigurationError
from onceward.observe.thresholds import Thresholds, parse_thresholds
from onceward.operations.settings_file import OPERATIONS, declared_operations, find_settings
from onceward.operations.table import Operations
from onceward.protocol.duration import microseconds
from onceward.protocol.history import MODES
from onceward.protocol.secrets import url_without_secrets
from onceward.protocol.suggest import did_you_mean
from onceward.stores.registry import DEFAULT, ENVIRONMENT

SETTINGS: dict[str, tuple[str, str]] = {
    "store": (DEFAULT, "where the records are"),
    "app": ("default", "first part of the scope"),
    "tenant": ("", "only this tenant"),
    "scope": ("", "only this scope"),
    "output": ("auto", "format of the output"),
    "window": ("24h", "run: how long to replay"),
    "lease": ("60s", "run: takeover after a crash"),
    "wait": ("24h", "run: wait for another owner"),
    "settle_timeout": ("", "run: retry storing the result"),
    "after_crash": ("rerun", "run: action after a crash"),
    "history": ("problems", "run: which events to keep"),
}
"""The default and the purpose of each setting. The purposes are short enough for 80 columns.

Settings of `run` do not apply to your Python code.
"""

DEFAULTS = {name: default for name, (default, _) in SETTINGS.items()}
VARIABLES = {name: ENVIRONMENT if name == "store" else f"ONCEWARD_{name.upper()}" for name in DEFAULTS}
RETRY_SPANS = "retry_spans"
"""A table, only in files: for each scope or operation, how long its sender redelivers."""

RULES = "rules"
"""A table, only in files: the thresholds of `onceward check`, each with a default."""

MAY_BE_EMPTY = ("tenant", "scope", "settle_timeout")  # no tenant, all scopes, the longer of lease and 10 minutes
CHOICES = {"output": ("auto", "table", "json"), "after_crash": ("rerun", "park"), "history": MODES}


class EffectiveSetting(NamedTuple):
    """A value and where it was set."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"<EffectiveSetting {url_without_secrets(self.value)!r} from {self.source}>"


class FileSettings(NamedTuple):
    """The settings of a file, and its name."""

    settings: dict[str, str]
    spans: dict[str, str]
    file: str

    def __repr__(self) -> str:  # never the settings: the URL of the store may include a password
        return f"<FileSettings of {self.file or 'no file'}>"


def effective_settings(flags: Mapping[str, str | None]) -> dict[str, EffectiveSetting]:
    """Return every setting, from the first source that has it. An empty variable counts as unset."""
    from_file, _, file = read_settings_file(Path.cwd())
    found = {}
    for name, default in DEFAULTS.items():
        flag, variable = flags.get(name), VARIABLES[name]
        if flag is not None:
            found[name] = EffectiveSetting(flag, f"--{name.replace('_', '-')}")
        elif os.environ.get(variable):
            found[name] = EffectiveSetting(os.environ[variable], f"${variable}")
        elif name in from_file:
            found[name] = EffectiveSetting(from_file[name], file)
        else:
            found[name] = EffectiveSetting(default, "default")
        _check(name, found[name])
    return found


def retry_spans(flags: Mapping[str, str]) -> dict[str, EffectiveSetting]:
    """Return the declared retry spans, by scope or operation. The table of retry spans wins over that of operations."""
    _, from_file, file = read_settings_file(Path.cwd())
    spans = {
        one.name: EffectiveSetting(span if isinstance(span, str) else f"{span}s", file)
        for one in operations_from_file()
        if (span := one.settings.get("retry_span")) is not None
    }
    spans |= {name: EffectiveSetting(value, file) for name, value in from_file.items()}
    return spans | {name: EffectiveSetting(value, "--retry-span") for name, value in flags.items()}


def thresholds() -> Thresholds:
    """Return the thresholds declared by the settings file in the current directory."""
    table, file = find_settings(Path.cwd())
    _check_table(table, file)  # a mistyped heading must not look like a file without rules
    rules = table.get(RULES, {})
    if not isinstance(rules, dict):
        raise ConfigurationError(f"{file}: {RULES} is not a table", hint=f"write [{RULES}] and claim_errors = 10")
    return parse_thresholds(rules, f"{file} [{RULES}]" if file else RULES)


def operations_from_file() -> Operations:
    """Return the operations declared by the settings file in the current directory."""
    table, file = find_settings(Path.cwd())
    _check_table(table, file)  # a mistyped heading must not look like a file without operations
    return Operations.of_file(declared_operations(table, file), file)


def read_settings_file(folder: Path) -> FileSettings:
    """Return the settings of the first file in the directory that has any. Relative store paths start there."""
    table, name = find_settings(folder)
    return FileSettings(_check_table(table, name), _check_spans(table, name), name)


def _check_table(table: Mapping[str, Any], file: str) -> dict[str, str]:
    settings = {}
    for written, value in table.items():
        name = written.replace("-", "_")
        if name in (RETRY_SPANS, OPERATIONS, RULES):
            continue
        if name not in DEFAULTS:
            raise ConfigurationError(
                f"{file}: there is no setting {written!r}",
                hint=did_you_mean(name, [*DEFAULTS, RETRY_SPANS, OPERATIONS, RULES], "settings are"),
            )
        if not isinstance(value, str):
            shown = value if isinstance(value, int | float) else type(value).__name__  # a table may contain a password
            raise ConfigurationError(f"{file}: {written} must be text, not {shown}", hint=f'write {written} = "…"')
        settings[name] = value
    return settings


def _check_spans(table: Mapping[str, Any], file: str) -> dict[str, str]:
    spans = table.get(RETRY_SPANS, table.get(RETRY_SPANS.replace("_", "-"), {}))
    if not isinstance(spans, dict) or not all(isinstance(value, str) for value in spans.values()):
        raise ConfigurationError(
            f"{file}: {RETRY_SPANS} is not a table of scopes and durations",
            hint=f'write {RETRY_SPANS} = {{ "shop/charge" = "3d" }}',
        )
    for name, value in spans.items():
        microseconds(value, f"{file}: the retry span of {name}")
    return spans


def _check(name: str, setting: EffectiveSetting) -> None:
    allowed = CHOICES.get(name)
    if allowed and setting.value not in allowed:
        raise ConfigurationError(
            f"{name} cannot be {setting.value!r} (from {setting.source})", hint="choose one of: " + ", ".join(allowed)
        )
    if not setting.value and name not in MAY_BE_EMPTY:
        raise ConfigurationError(f"{name} is empty (from {setting.source})")
