"""Keys from templates with arguments, such as `"email:{prospect_id}"`.

A field is a parameter, or a value inside one: `{order.id}`, `{payload[id]}` (both mean an item of a mapping, an index
of a sequence, else an attribute). Each value is converted to text, so `5` and `"5"` are one key (`placeholder_text`
lists the texts). The key consists of the literals and the texts between them, encoded separately: `"a:b", "c"`
and `"a", "b:c"` are two keys. Renaming a parameter does not change the key. A template without fields, or with one
field and no other text, has the same key as its text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Final
from uuid import UUID

import msgspec

from onceward.errors import ConfigurationError, InvalidKey, MissingKey

from .key import is_empty
from .readable import escape
from .shape import class_name

_root = re.compile(r"[^\W\d]\w*")
_step = re.compile(r"\.([^\W\d]\w*)|\[([^\[\]]+)\]")
ABSENT: Final = object()
"""A step of a path leads to nothing."""
MAX_DIGITS: Final = 1_300  # as many as the integers of the canonical encoding have
LARGE: Final = 2**64  # below it, an integer has few digits
ACCEPTED: Final = "str, int, Decimal, UUID, date, aware datetime or an Enum of these"


class _Field(msgspec.Struct, frozen=True):
    text: str
    root: str
    steps: tuple[str, ...]

    def value(self, arguments: Mapping[str, object]) -> object:
        """Return the value; None if a step of the path does not exist."""
        found = arguments.get(self.root)
        for step in self.steps:
            found = value_inside(found, step)
            if found is None or found is ABSENT:
                return None
        return found.value if isinstance(found, Enum) else found


class Template:
    """A key source: literal text and fields in braces."""

    def __init__(self, text: str) -> None:
        if not text:
            raise MissingKey("the template of a key is empty", hint='such as "email:{prospect_id}"')
        self.text = text
        self._literals, self._fields = _parse(text)
        self._is_bare = len(self._fields) == 1 and not any(self._literals)
        self.only_parameter = self._fields[0].root if self._is_bare and not self._fields[0].steps else None
        """The parameter that is the whole key, if the template is one parameter."""
        self.whole_arguments = frozenset(field.root for field in self._fields if not field.steps)
        """The parameters that the key contains completely, not only a value inside them."""

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def has_fields(self) -> bool:
        return bool(self._fields)

    def canonical_text(self, names: Sequence[str] = ()) -> str:
        """Return the template in one spelling, by which two deployments are compared.

        Each parameter in `names` is replaced by its position there: renaming it does not change the key.
        """
        pieces = [_escaped(self._literals[0])]
        for field, literal in zip(self._fields, self._literals[1:], strict=True):
            root = str(names.index(field.root)) if field.root in names else field.root
            steps = "".join(f".{step}" if step.isidentifier() else f"[{step}]" for step in field.steps)
            pieces += (f"{{{root}{steps}}}", _escaped(literal))
        return "".join(pieces)

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Reject a field that no call can fill."""
        for field in self._fields:
            if field.root not in names and not has_var_keywords:
                known = ", ".join(names) or "none"
                raise ConfigurationError(
                    f"the key template {self.text!r} names {field.root!r}, which is not a parameter",
                    hint=f"the parameters are: {known}",
                )

    def covers(self, names: Collection[str]) -> bool:
        """Return whether the key contains all of these arguments completely, so they cannot differ under one key."""
        return self.whole_arguments.issuperset(names)

    def reduce(self, payload: Mapping[str, object]) -> dict[str, object]:
        """Return the payload without the arguments that the key contains completely."""
        return {name: value for name, value in payload.items() if name not in self.whole_arguments}

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        pieces = [self._literals[0]]
        for field, literal in zip(self._fields, self._literals[1:], strict=True):
            value = field.value(arguments)
            if is_empty(value):
                raise _missing(self.text, self.missing(arguments))
            pieces += (placeholder_text(value, field.text), literal)
        if self._is_bare:
            return pieces[1], ""  # the key shows a text as it is
        return pieces[0] if len(pieces) == 1 else pieces, escape("".join(pieces))

    def missing(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the fields that are absent, None or empty."""
        return [field.text for field in self._fields if is_empty(field.value(arguments))]


class FirstOf:
    """A key source: the first template whose fields all have values."""

    def __init__(self, templates: Sequence[str | Template]) -> None:
        if not templates:
            raise ConfigurationError("a list of key templates is empty", hint="pass at least one template")
        self.templates = tuple(Template(each) if isinstance(each, str) else each for each in templates)

    def __repr__(self) -> str:
        return f"FirstOf({[template.text for template in self.templates]!r})"

    def check(self, names: Collection[str], *, has_var_keywords: bool) -> None:
        """Reject fields that no call can fill."""
        for template in self.templates:
            template.check(names, has_var_keywords=has_var_keywords)

    def covers(self, names: Collection[str]) -> bool:
        """Return `Template.covers` for a single template: two templates may produce the same key for two payloads."""
        return len(self.templates) == 1 and self.templates[0].covers(names)

    def reduce(self, payload: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the payload with the texts of the arguments that the key contains completely.

        They are compared, because two templates may produce the same key from different arguments.
        """
        template = self._chosen(arguments)
        if len(self.templates) == 1:
            return template.reduce(payload)
        whole = template.whole_arguments
        return {name: placeholder_text(value, name) if name in whole else value for name, value in payload.items()}

    def __call__(self, arguments: Mapping[str, object]) -> tuple[object, str]:
        return self._chosen(arguments)(arguments)

    def _chosen(self, arguments: Mapping[str, object]) -> Template:
        absent: list[str] = []
        for template in self.templates:
            missing = template.missing(arguments)
            if not missing:
                return template
            absent += missing
        raise _missing(" or ".join(template.text for template in self.templates), list(dict.fromkeys(absent)))


def _parse(text: str) -> tuple[tuple[str, ...], tuple[_Field, ...]]:
    """Return literals and fields. There is one more literal than fields; literals may be empty."""
    from string import Formatter  # imported here: a template is usually parsed once per process

    literals, fields, pending = [], [], ""
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigurationError(f"the key template {text!r} is invalid: {error}", hint="write {{ for {") from None
    for literal, field, spec, conversion in pieces:
        pending += literal
        if field is None:
            continue
        if spec or conversion:
            raise ConfigurationError(
                f"the key template {text!r} formats {field!r}; a key consists of values without a format",
                hint="remove ':' and '!', or use a callable",
            )
        fields.append(_field(field, text))
        literals.append(pending)
        pending = ""
    return (*literals, pending), tuple(fields)


def _escaped(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")


def _field(field: str, template: str) -> _Field:
    root = _root.match(field)
    end = root.end() if root else 0
    steps = []
    while root and (step := _step.match(field, end)):
        steps.append(step[1] or step[2])
        end = step.end()
    if root is None or end != len(field):
        raise ConfigurationError(
            f"the key template {template!r} has a field {{{field}}} that is not a parameter",
            hint="write {parameter}, {parameter.attribute} or {parameter[item]}",
        )
    return _Field(field, root[0], tuple(steps))


def value_inside(value: object, step: str) -> object:
    """Return the item, the index or the attribute `step` of a value; ABSENT if it has none."""
    if isinstance(value, Mapping):
        found = value.get(step, ABSENT)
        return value.get(int(step), ABSENT) if found is ABSENT and step.isdecimal() else found
    if step.isdecimal() and isinstance(value, Sequence):
        index = int(step)
        return value[index] if index < len(value) else ABSENT
    return getattr(value, step, ABSENT)


def _missing(template: str, fields: list[str]) -> MissingKey:
    return MissingKey(
        f"the key {template!r} has no value for {', '.join(fields)}", hint="pass it, or use a list of templates"
    )


# ── the text of a value ──


def placeholder_text(value: object, field: str) -> str:
    """Return the text of a value. Raise InvalidKey, which names the placeholder `field`, if it has none.

    | value                                   | text                                               |
    |-----------------------------------------|----------------------------------------------------|
    | `str` and its subclasses                | the plain string                                   |
    | `int`                                   | decimal digits                                     |
    | `Decimal`                               | without trailing zeros and exponent: `1.1`, `100`  |
    | `UUID`                                  | `12345678-1234-5678-1234-567812345678`             |
    | `date`                                  | `2026-01-31`                                       |
    | `datetime` with a time zone             | in UTC: `2026-01-31T12:00:00+00:00`                |
    | member of an `Enum`                     | the text of its value                              |

    Other types have several usual texts (`1.0` or `1`, `True` or `true`), so they raise.
    """
    while isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)  # not str(): a subclass may override it
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int.__index__(value)) if -LARGE < value < LARGE else _large_int_text(value, field)
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if isinstance(value, dt.datetime):
        return _datetime_text(value, field)
    if isinstance(value, dt.date):
        return dt.date.isoformat(value)
    if isinstance(value, Decimal):
        return _decimal_text(value, field)
    raise InvalidKey(
        f"the placeholder {{{field}}} of the key is {class_name(type(value)).removeprefix('builtins.')}",
        hint=f"a placeholder takes {ACCEPTED}; name a field of it, convert it, or use a callable",
    )


def _large_int_text(value: int, field: str) -> str:
    try:
        text = str(int.__index__(value))
    except ValueError:  # Python's own limit
        text = ""
    if not 0 < len(text) <= MAX_DIGITS:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key has more than {MAX_DIGITS:,} digits", hint="pass it as text"
        )
    return text


def _decimal_text(value: Decimal, field: str) -> str:
    if not value.is_finite():
        raise InvalidKey(f"the placeholder {{{field}}} of the key is {value}", hint="pass a finite number")
    if not value:
        return "0"  # also for -0
    if abs(value.adjusted()) > MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key has more than {MAX_DIGITS:,} digits", hint="pass it as text"
        )
    text = Decimal.__format__(value, "f")  # not normalize(), which rounds to the precision of the current context
    return text.rstrip("0").rstrip(".") if "." in text else text


def _datetime_text(value: dt.datetime, field: str) -> str:
    if value.utcoffset() is None:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is a datetime without a time zone, which is ambiguous",
            hint="use an aware one, such as datetime.now(UTC)",
        )
    if getattr(value, "nanosecond", 0):  # of a subclass; they would be truncated silently
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is more precise than microseconds", hint="pass it as text"
        )
    try:
        return dt.datetime.isoformat(dt.datetime.astimezone(value, dt.UTC))
    except OverflowError:
        raise InvalidKey(
            f"the placeholder {{{field}}} of the key is not within the years 1 to 9999 in UTC", hint="pass it as text"
        ) from None
