"""Encode the `--result` of `onceward resolve` with the type and the cipher of the function that the record is of."""

from __future__ import annotations

from typing import Any

import click

from onceward.administration.actions import encode_plain
from onceward.administration.typed_result import encode_typed
from onceward.client.base import BaseClient
from onceward.errors import ConfigurationError
from onceward.keys.key import parse_scope
from onceward.operations.operation import Operation
from onceward.protocol.record import Record
from onceward.results.codec import Encoded

from .exit_codes import Exit
from .load_object import load_object
from .program import CommandError

APP = click.option(
    "--app",
    metavar="MODULE:NAME",
    help="With --result: the decorated function or its client. The result is stored with the function's type.",
)


def encode_result(value: Any, text: str | None, record: Record, app: str | None) -> Encoded:
    """Encode `value`, parsed from the JSON `text`. With `app`, read the text as the type that its function declares."""
    if app is not None:
        return encode_typed(_operation(load_object(app), app, record), text, record)
    encoded = encode_plain(value, record)
    if encoded.data is None:
        raise CommandError(f"the result cannot be stored, nothing was changed: {encoded.reason}", Exit.USAGE)
    return encoded


def _operation(found: Any, app: str, record: Record) -> Operation:
    """Return the operation of the record. `found` is a client or a decorated function."""
    scope = parse_scope(record.scope)
    operation = getattr(found, "operation", None)
    if isinstance(found, BaseClient):
        operation = None if scope is None else found.declared_functions.find(scope)
    if not isinstance(operation, Operation):
        raise ConfigurationError(
            f"{app} declares no function for {record.scope}", hint="name the client or the decorated function"
        )
    if scope is None or (operation.scope.app, operation.scope.operation) != (scope.app, scope.operation):
        raise ConfigurationError(
            f"{app} is the function of {operation.scope.text}, and this record is of {record.scope}",
            hint="name the function that the record is of",
        )
    return operation
