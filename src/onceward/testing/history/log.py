"""Logs for a recorder: a list in memory, or a file that survives SIGKILL.

A file has one line of JSON per event: a call before it is sent, its answer or error afterwards. Each line is one
`write` to a file opened for appending, so the kernel keeps what a killed process had written. An incomplete last line
belongs to a call that was never sent, or to an answer that the process never used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.protocol.requests import Answer

from .operation import KINDS, VERBS, Operation, Request

PERMISSIONS = 0o600
"""Only the user may read the file, because a history contains results and notes."""


class Log(Protocol):
    """The interface that a recorder needs. A number identifies one operation; `at` is a time of `time.monotonic_ns`.

    `numbers` are those that `called` returned.
    """

    def called(self, at: int, by: str, requests: Sequence[Request]) -> Sequence[int]:
        """Record that the worker `by` sends these `requests`. Return a number for each."""
        ...

    def answered(self, at: int, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        """Record the `answers` to these requests."""
        ...

    def raised(self, at: int, numbers: Sequence[int], error: str, *, late_effects: bool) -> None:
        """Record calls that ended with an `error` instead of an answer.

        With `late_effects`, the requests may still take effect after this.
        """


NO_ANSWER = "no answer"
"""The error of a call that has not ended."""


class MemoryLog:
    """The history of one process with any number of threads and tasks."""

    def __init__(self) -> None:
        self._numbers = count()
        self._operations: dict[int, Operation] = {}

    def called(self, at: int, by: str, requests: Sequence[Request]) -> Sequence[int]:
        numbers = [next(self._numbers) for _ in requests]
        for number, request in zip(numbers, requests, strict=True):
            self._operations[number] = Operation(by, request, at, None, None, NO_ANSWER)
        return numbers

    def answered(self, at: int, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        for number, answer in zip(numbers, answers, strict=True):
            self._operations[number] = replace(self._operations[number], returned=at, answer=answer, error="")

    def raised(self, at: int, numbers: Sequence[int], error: str, *, late_effects: bool) -> None:
        returned = None if late_effects else at
        for number in numbers:
            self._operations[number] = replace(self._operations[number], returned=returned, error=error)

    def operations(self) -> list[Operation]:
        """Return the history so far. Calls in progress have no answer."""
        return list(self._operations.values())


class _Line(Struct, omit_defaults=True):
    """One event. It has a verb and its request, or an answer, or an error, or `ended`."""

    at: int
    number: int = -1
    by: str = ""
    verb: str = ""
    request: Raw = Raw()  # its type depends on the verb
    answer: Answer | None = None
    error: str = ""
    late_effects: bool = False
    ended: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class FileLog:
    """The history of one process, in its own file at `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._pid = os.getpid()
        self._numbers = count()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, PERMISSIONS)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def called(self, at: int, by: str, requests: Sequence[Request]) -> Sequence[int]:
        if os.getpid() != self._pid:
            raise ConfigurationError(
                "this log belongs to the parent process", hint="open another log in the child, with a new path"
            )
        numbers = [next(self._numbers) for _ in requests]
        self._write(
            _Line(at, number, by, VERBS[type(request)], Raw(_encode(request)))
            for number, request in zip(numbers, requests, strict=True)
        )
        return numbers

    def answered(self, at: int, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        self._write(_Line(at, number, answer=answer) for number, answer in zip(numbers, answers, strict=True))

    def raised(self, at: int, numbers: Sequence[int], error: str, *, late_effects: bool) -> None:
        self._write(_Line(at, number, error=error or "error", late_effects=late_effects) for number in numbers)

    def _write(self, lines: Iterable[_Line]) -> None:
        os.write(self._file, b"".join(_encode(line) + b"\n" for line in lines))


def mark_ended(path: str | os.PathLike[str]) -> None:
    """Record in the log at `path` that its process is dead, and that its requests take no effect after this instant.

    Call this only for a store in a file. A server may still execute the request of a dead client.
    """
    line = _encode(_Line(time.monotonic_ns(), ended=True))
    with Path(path).open("ab") as file:
        file.write(b"\n" + line + b"\n")  # terminates a line that the kill left incomplete


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> list[Operation]:
    """Return the histories in the files at `paths`, of several processes, as one history."""
    return [operation for path in paths for operation in read_log(path)]


def read_log(path: str | os.PathLike[str]) -> list[Operation]:
    """Return the history that one process wrote to the file at `path`."""
    operations: dict[int, Operation] = {}
    ended: int | None = None
    lines = [line for line in Path(path).read_bytes().split(b"\n") if line]
    for position, text in enumerate(lines):
        try:
            line = _decode(text)
        except msgspec.DecodeError:
            if position + 1 == len(lines) or _is_end_marker(lines[position + 1]):
                continue
            raise
        if line.verb:
            request = msgspec.json.decode(line.request, type=KINDS[line.verb])
            operations[line.number] = Operation(line.by, request, line.at, None, None, NO_ANSWER)
        elif line.ended:
            ended = line.at
        else:
            returned = None if line.late_effects else line.at
            before = operations[line.number]
            operations[line.number] = replace(before, returned=returned, answer=line.answer, error=line.error)
    return [replace(one, returned=ended) if one.error == NO_ANSWER else one for one in operations.values()]


def _is_end_marker(text: bytes) -> bool:
    try:
        return _decode(text).ended
    except msgspec.DecodeError:
        return False
