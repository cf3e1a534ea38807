"""The table of operations: each declared once, with its key and its choices, and used by its name.

    operations = Operations(
        email={"key": "email:{prospect_id}", "window": "24h", "lease": "300s", "fingerprint": "none"},
        enrich={"key": "enrich:{prospect_id}:{type}", "window": "24h", "window_from": "attempt"},
    )
    once = Once(operations=operations)        # or operations="onceward.toml"

    @once.operation("email")
    def send(prospect_id: int, text: str) -> None: ...

What cannot work is refused when the table is made; what is only unwise is warned about when a client takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.keys.sources import source_for
from onceward.protocol.policy import Choices, Policy, Settings
from onceward.protocol.suggest import did_you_mean
from onceward.protocol.window import Window, calendar, forever, lasting, sliding, window_of

from .operation import KeySource, Operation, TenantSource, versioned
from .settings_file import OPERATIONS, operations_in, table_in

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

WindowFrom = Literal["completion", "attempt"]
OF_OPERATIONS = ("key", "version", "tenant", "window_from")
FIELDS = (*OF_OPERATIONS, *sorted(Settings.__optional_keys__))
IN_CODE = ("final", "retry", "not_applied")
"""Exception types, which a file cannot name."""

WINDOWS = {"lasting": lasting, "sliding": sliding, "calendar": calendar}
TRIED = (Exception, TimeoutError)
"""Every failure of an attempt. A timeout counts only where it is named itself: it says nothing about the effect."""


class Declaring(Choices, total=False):
    """An operation as it is written. Without `skip`: a call that may return None says so at the function itself."""

    key: KeySource
    version: str | int
    tenant: TenantSource
    window_from: WindowFrom
    on_running: Literal["wait", "raise"]
    on_done: Literal["replay", "raise"]


class Declaration(Struct, frozen=True):
    """One operation of the table. `written` is what it says itself; `settings` is what that means."""

    name: str
    written: dict[str, Any]
    settings: dict[str, Any]
    file: str = ""

    @property
    def parts(self) -> dict[str, Any]:
        """What makes its keys."""
        return {name: self.written.get(name) for name in ("key", "version", "tenant")} | {"name": self.name}

    def adding(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Its settings, and what the function adds to them. What the table says is said once."""
        for name in choices:
            if name in self.written:
                raise ConfigurationError(
                    f"{self.name} declares {name} in its table already", hint="say it there, or here, but not in both"
                )
        return {**self.settings, **choices}

    def policy(self, defaults: Policy | None = None) -> Policy:
        """The choices in force under these defaults."""
        return (defaults or Policy()).with_settings(cast("Settings", self.settings), of=None)


class Operations:
    """Declared operations by name. Made of keywords, of a mapping, or of a file."""

    def __init__(
        self, table: Mapping[str, Declaring] | None = None, /, *, file: str = "", **declared: Declaring
    ) -> None:
        named = {**(table or {}), **declared}
        self._declared = {name: _declaration(name, fields, file) for name, fields in named.items()}

    @classmethod
    def load(cls, path: str | Path = "onceward.toml") -> Operations:
        """Those of a file: `[operations.NAME]`, in a `pyproject.toml` `[tool.onceward.operations.NAME]`."""
        file = Path(path)
        table = operations_in(table_in(file) or {}, file.name)
        if not table:
            raise ConfigurationError(
                f"{file.name} declares no operations", hint=f'write [{OPERATIONS}.email] and window = "24h"'
            )
        return cls.of_file(table, file.name)

    @classmethod
    def of_file(cls, table: Mapping[str, Mapping[str, Any]], file: str) -> Operations:
        """Those of a file that was read already. It may write `window-from` for window_from."""
        plain = {
            name: {field.replace("-", "_"): value for field, value in fields.items()} for name, fields in table.items()
        }
        return cls(cast("Mapping[str, Declaring]", plain), file=file)

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
        """Refuse, or warn about, what does not go together with these defaults."""
        for one in self:
            defaults.with_settings(cast("Settings", one.settings), of=one.name)

    def __repr__(self) -> str:
        return f"<Operations {', '.join(self._declared) or 'none'}>"


OperationsSource = Operations | Mapping[str, Declaring] | str | Path
"""What a client may be given."""


def declared(
    client: BaseClient, fn: Callable[..., Any], name: str, choices: Mapping[str, Any], **parts: Any
) -> Operation:
    """The operation of a function that is done under a declared name. Several may share it: they mean the same work."""
    declaration = client.operations[name]
    settings = declaration.adding(choices)
    warned = not choices.keys() & {"window", "retry_span"}
    operation = client.compiled(fn, settings, warned=warned, **declaration.parts, **parts)
    client.keep_input_of(operation)
    return operation


def operations_of(given: OperationsSource | None) -> Operations:
    """What a client may be given: the table, what makes one, or the path of its file."""
    if given is None or isinstance(given, Mapping):
        return Operations(given)
    if isinstance(given, str | Path):
        return Operations.load(given)
    if not isinstance(given, Operations):
        raise ConfigurationError(f"{given!r} is no table of operations", hint='give operations="onceward.toml"')
    return given


def _declaration(name: str, fields: Mapping[str, Any], file: str) -> Declaration:
    """Checked: every field is known, and each can work."""
    told = f"{file}: {name}" if file else name
    try:
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"an operation is a table of its fields, not {fields!r}")  # noqa: TRY301 (one prefix for all)
        _check_fields(fields, file)
        written = dict(fields)
        settings = {field: value for field, value in written.items() if field not in OF_OPERATIONS}
        _read_window(written, settings)
        found = Declaration(name, written, settings, file)
        source_for(written.get("key"))
        versioned(name, written.get("version"))
        found.policy()
    except ConfigurationError as error:
        raise type(error)(f"{told}: {error}") from None
    return found


def _check_fields(fields: Mapping[str, Any], file: str) -> None:
    for field, value in fields.items():
        if field not in FIELDS:
            raise ConfigurationError(f"there is no field {field!r}", hint=did_you_mean(field, FIELDS, "fields are"))
        if field in ("on_running", "on_done") and value == "skip":
            raise ConfigurationError(
                "skip makes a call return None, so it is declared on the function itself",
                hint=f'@once.operation(…, {field}="skip")',
            )
        if file and field in IN_CODE:
            raise ConfigurationError(
                f"{field} names exception types, which a file cannot", hint=f"@once.operation(…, {field}=…)"
            )


def _read_window(written: Mapping[str, Any], settings: dict[str, Any]) -> None:
    """The window, and what it counts from. From the attempt means: tried is tried, also if it failed."""
    if "window" in written:
        settings["window"] = _window(written["window"])
    counted = written.get("window_from", "completion")
    if counted not in ("completion", "attempt"):
        raise ConfigurationError(f"window_from cannot be {counted!r}", hint="choose one of: completion, attempt")
    if "window_from" not in written:
        return
    window = settings.get("window")
    if window is None or window.kind != "lasting":
        raise ConfigurationError(
            f"window_from={counted!r} counts a duration, and the window is {window or 'not given'}",
            hint='give window = "24h" with it',
        )
    settings["window"] = replace(window, since=counted)
    decided = {"final", "retry"} & written.keys() or written.get("after_crash", "rerun") != "rerun"
    if counted == "attempt" and not decided:
        settings["final"] = TRIED


def _window(value: Any) -> Window:
    """A window as code or a file writes it: "24h", "forever", {sliding = "1h"}, {calendar = "Europe/Berlin"}."""
    if isinstance(value, Mapping):
        kinds = [kind for kind in value if kind in WINDOWS]
        if len(value) != 1 or not kinds:
            raise ConfigurationError(
                f"window cannot be {dict(value)!r}",
                hint='write window = "24h", "forever", { sliding = "1h" } or { calendar = "Europe/Berlin" }',
            )
        make: Any = WINDOWS[kinds[0]]
        made: Window = make(value[kinds[0]])
        return made
    return forever if value == "forever" else window_of(value)
