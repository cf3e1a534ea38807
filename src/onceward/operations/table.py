"""The table of operations: each is declared once, with its key and options, and used by its name.

    operations = Operations(
        email={"key": "email:{prospect_id}", "window": "24h", "lease": "300s", "fingerprint": "none"},
        enrich={"key": "enrich:{prospect_id}:{type}", "window": "24h", "window_from": "attempt"},
    )
    once = Once(operations=operations)        # or operations="onceward.toml"

    @once.operation("email")
    def send(prospect_id: int, text: str) -> None: ...

A declaration that cannot work raises when the table is created. One that is only unwise warns when a client uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.keys.sources import source_for
from onceward.protocol.policy import CommonSettings, Policy, Settings
from onceward.protocol.suggest import did_you_mean
from onceward.protocol.window import Window, calendar, forever, lasting, parse_window, sliding

from .operation import KeySource, Operation, TenantSource, versioned
from .settings_file import OPERATIONS, declared_operations, read_settings

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

WindowFrom = Literal["completion", "attempt"]
OPERATION_FIELDS = ("key", "version", "tenant", "window_from")
FIELDS = (*OPERATION_FIELDS, *sorted(Settings.__optional_keys__))
CODE_ONLY_FIELDS = ("final", "retry", "not_applied")
"""Settings that take exception types, which a file cannot name."""

WINDOWS = {"lasting": lasting, "sliding": sliding, "calendar": calendar}
ANY_FAILURE = (Exception, TimeoutError)
"""Every failure of an attempt. TimeoutError is listed because `Exception` alone does not cover timeouts here: a
timeout says nothing about the effect, so policies treat it as final only if it is named."""


class OperationFields(CommonSettings, total=False):
    """The fields of an operation. Not `skip`: it makes calls return None, so it is declared on the function itself."""

    key: KeySource
    version: str | int
    tenant: TenantSource
    window_from: WindowFrom
    on_running: Literal["wait", "raise"]
    on_done: Literal["replay", "raise"]


class Declaration(Struct, frozen=True):
    """One operation of the table. `written` are its fields as written, `settings` what they mean."""

    name: str
    written: dict[str, Any]
    settings: dict[str, Any]
    file: str = ""

    @property
    def parts(self) -> dict[str, Any]:
        """The fields that determine its keys."""
        return {name: self.written.get(name) for name in ("key", "version", "tenant")} | {"name": self.name}

    def settings_with(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Return its settings and those that the function adds. Raise if both declare the same one."""
        for name in choices:
            if name in self.written:
                raise ConfigurationError(
                    f"{self.name} already declares {name} in its table", hint="declare it there or here, not in both"
                )
        return {**self.settings, **choices}

    def policy(self, defaults: Policy | None = None) -> Policy:
        """Return its policy under these defaults."""
        return (defaults or Policy()).with_settings(cast("Settings", self.settings), operation=None)


class Operations:
    """Declared operations by name, created from keywords, a mapping or a file.

    `table` maps names to settings, such as `{"email": {"window": "24h"}}`; `declared` are more of them, as keywords.
    `file` is the name of their source, for messages. A setting that does not exist raises `ConfigurationError`.
    """

    def __init__(
        self,
        table: Mapping[str, OperationFields] | None = None,
        /,
        *,
        file: str = "",
        **declared: OperationFields,
    ) -> None:
        named = {**(table or {}), **declared}
        self._declared = {name: _declaration(name, fields, file) for name, fields in named.items()}

    @classmethod
    def load(cls, path: str | Path = "onceward.toml") -> Operations:
        """Return the operations that a file declares.

        Args:
            path: A TOML file with `[operations.NAME]` tables. In a `pyproject.toml`, they are
                `[tool.onceward.operations.NAME]`.

        Raises:
            ConfigurationError: The file is missing or malformed, declares no operations, or has an unknown setting.
        """
        file = Path(path)
        table = declared_operations(read_settings(file) or {}, file.name)
        if not table:
            raise ConfigurationError(
                f"{file.name} declares no operations", hint=f'write [{OPERATIONS}.email] and window = "24h"'
            )
        return cls.of_file(table, file.name)

    @classmethod
    def of_file(cls, table: Mapping[str, Mapping[str, Any]], file: str) -> Operations:
        """Return the operations of a file that was already read. A file may use `window-from` for window_from."""
        fields_by_name = {
            name: {field.replace("-", "_"): value for field, value in fields.items()} for name, fields in table.items()
        }
        return cls(cast("Mapping[str, OperationFields]", fields_by_name), file=file)

    def __getitem__(self, name: str) -> Declaration:
        if name not in self._declared:
            raise ConfigurationError(
                f"there is no operation {name!r}",
                hint=did_you_mean(name, self._declared, "declared are")
                if self._declared
                else 'none is declared: Once(operations="onceward.toml"), or Once(operations={…})',
            )
        return self._declared[name]

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._declared.values())

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def check(self, defaults: Policy) -> None:
        """Raise, or warn, about operations that conflict with these defaults."""
        for one in self:
            defaults.with_settings(cast("Settings", one.settings), operation=one.name)

    def __repr__(self) -> str:
        return f"<Operations {', '.join(self._declared) or 'none'}>"


OperationsSource = Operations | Mapping[str, OperationFields] | str | Path
"""What `Once(operations=…)` accepts."""


def declared_operation(
    client: BaseClient, fn: Callable[..., Any], name: str, choices: Mapping[str, Any], **parts: Any
) -> Operation:
    """Return the operation of a function under a declared name. Functions that share a name do the same work."""
    declaration = client.operations[name]
    settings = declaration.settings_with(choices)
    warned = not choices.keys() & {"window", "retry_span"}
    operation = client.compile_operation(
        fn, settings, warned=warned, table_settings=tuple(declaration.settings), **declaration.parts, **parts
    )
    client.keep_input_of(operation)
    client._compare_later(operation)  # noqa: SLF001 (shared with the clients)
    return operation


def as_operations(given: OperationsSource | None) -> Operations:
    """Convert what `Once(operations=…)` accepts into a table: the table itself, a mapping, or the path of a file."""
    if given is None or isinstance(given, Mapping):
        return Operations(given)
    if isinstance(given, str | Path):
        return Operations.load(given)
    if not isinstance(given, Operations):
        raise ConfigurationError(f"{given!r} is not a table of operations", hint='pass operations="onceward.toml"')
    return given


def _declaration(name: str, fields: Mapping[str, Any], file: str) -> Declaration:
    """Check the fields of one operation, and return its declaration."""
    prefix = f"{file}: {name}" if file else name
    try:
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"an operation is a table of its fields, not {fields!r}")  # noqa: TRY301 (one prefix for all)
        _check_fields(fields, file)
        written = dict(fields)
        settings = {field: value for field, value in written.items() if field not in OPERATION_FIELDS}
        _read_window(written, settings)
        found = Declaration(name, written, settings, file)
        source_for(written.get("key"))
        versioned(name, written.get("version"))
        found.policy()
    except ConfigurationError as error:
        raise type(error)(f"{prefix}: {error}") from None
    return found


def _check_fields(fields: Mapping[str, Any], file: str) -> None:
    for field, value in fields.items():
        if field not in FIELDS:
            raise ConfigurationError(f"there is no field {field!r}", hint=did_you_mean(field, FIELDS, "fields are"))
        if field in ("on_running", "on_done") and value == "skip":
            raise ConfigurationError(
                "skip makes calls return None, so it must be declared on the function itself",
                hint=f'@once.operation(…, {field}="skip")',
            )
        if file and field in CODE_ONLY_FIELDS:
            raise ConfigurationError(
                f"{field} takes exception types, which a file cannot name", hint=f"@once.operation(…, {field}=…)"
            )


def _read_window(written: Mapping[str, Any], settings: dict[str, Any]) -> None:
    """Read `window` and `window_from` into the settings.

    With `window_from = "attempt"`, a failed attempt counts too: every failure becomes final unless declared otherwise.
    """
    if "window" in written:
        settings["window"] = _window(written["window"])
    window_from = written.get("window_from", "completion")
    if window_from not in ("completion", "attempt"):
        raise ConfigurationError(f"window_from cannot be {window_from!r}", hint="choose one of: completion, attempt")
    if "window_from" not in written:
        return
    window = settings.get("window")
    if window is None or window.kind != "lasting":
        raise ConfigurationError(
            f"window_from={window_from!r} needs a duration, but the window is {window or 'not given'}",
            hint='declare window = "24h" with it',
        )
    settings["window"] = replace(window, since=window_from)
    declares_failures = {"final", "retry"} & written.keys() or written.get("after_crash", "rerun") != "rerun"
    if window_from == "attempt" and not declares_failures:
        settings["final"] = ANY_FAILURE


def _window(value: Any) -> Window:
    """Parse a window as code or a file writes it: "24h", "forever", {sliding = "1h"}, {calendar = "Europe/Berlin"}."""
    if isinstance(value, Mapping):
        kinds = [kind for kind in value if kind in WINDOWS]
        if len(value) != 1 or not kinds:
            raise ConfigurationError(
                f"window cannot be {dict(value)!r}",
                hint='write window = "24h", "forever", { sliding = "1h" } or { calendar = "Europe/Berlin" }',
            )
        create: Any = WINDOWS[kinds[0]]
        window: Window = create(value[kinds[0]])
        return window
    return forever if value == "forever" else parse_window(value)
