"""Keys from templates with arguments, such as `"email:{prospect_id}"`.

A field is a parameter, or a value inside one: `{order.id}`, `{payload[id]}` (both mean an item of a mapping, an index
of a sequence, else an attribute). Each value is converted to text (`placeholder.py`), so `5` and `"5"` are one key. The
key consists of the literals and the texts between them, encoded separately: `"a:b", "c"` and `"a", "b:c"` are two keys.
Renaming a parameter does not change the key. A template without fields, or with one field and no other text, has the
same key as its text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from onceward.errors import ConfigurationError, MissingKey

from .key import is_empty
from .placeholder import placeholder_text
from .readable import escape

_root = re.compile(r"[^\W\d]\w*")
_step = re.compile(r"\.([^\W\d]\w*)|\[([^\[\]]+)\]")
ABSENT: Final = object()
"""A step of a path leads to nothing."""


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
