"""Encode the result of `resolve` with the type and the cipher of the record's function."""

from __future__ import annotations

import json
from typing import Any

from onceward.client.base import BaseClient
from onceward.errors import ConfigurationError
from onceward.keys.key import parse_scope
from onceward.operations.operation import Operation, result_annotation
from onceward.protocol.record import Record
from onceward.results.codec import Codec, Encoded
from onceward.results.from_json import result_from_json

from .actions import Encode


def encode_typed(operation: Operation, text: str | None, record: Record) -> Encoded:
    """Encode a JSON text as the type that the function declares. None stands for no result."""
    value = None if text is None else result_from_json(text, result_annotation(operation.fn))
    return _encoded(operation.codec, value, record)


def encoder_of(client: BaseClient) -> Encode:
    """Return an encoder of results by record. If the record's function is not declared, it encodes plain values."""

    def encode(value: Any, record: Record) -> Encoded:
        scope = parse_scope(record.scope)
        operation = None if scope is None else client.declared_functions.find(scope)
        if operation is None:
            return _encoded(client.codec(), value, record)
        return encode_typed(operation, None if value is None else json.dumps(value), record)

    return encode


def _encoded(codec: Codec, value: Any, record: Record) -> Encoded:
    encoded = codec.encode(value, record.id, record.cycle)
    if encoded.data is None and codec.stores_results:
        raise ConfigurationError(f"the result cannot be stored, nothing was changed: {encoded.reason}")
    return encoded
