"""The log of the services: one JSON object per line, with the fields of the event."""

from __future__ import annotations

import json
import logging

import pytest

from examples.service.json_log import JsonFormatter

pytestmark = [pytest.mark.finding("N56")]


def test_fields_of_an_event_are_fields_of_the_line_and_objects_are_left_out() -> None:
    facts = {"event": "lock_released", "doc_hash": "sha256:ab", "status": "COMPLETED", "attempt": 2, "empty": ""}
    record = logging.makeLogRecord({
        "name": "documents", "levelname": "INFO", "msg": "%s %s", "args": ("lock_released", "sha256:ab"),
        **facts, "payload": {"secret": 1}, "color_message": "x", "time": "never",
    })  # fmt: skip
    line = json.loads(JsonFormatter().format(record))
    assert line.pop("time").endswith("+00:00"), "a field cannot replace the time of the line"
    assert line == {
        "severity": "INFO",
        "logger": "documents",
        "message": "lock_released sha256:ab",
        "event": "lock_released",
        "doc_hash": "sha256:ab",
        "status": "COMPLETED",
        "attempt": 2,
    }
