"""Recorded histories of real concurrent runs, and a checker for them: is every key linearizable?

    log = MemoryLog()
    store = Recorder(MyStore(…), log)
    ...                                   # threads, tasks, whatever you like
    assert_linearizable(log.operations())

`Recorder` wraps any store and notes each request with the instants around it. `check` looks for an order of each key's
operations that respects real time and that the state table could have answered in this way, and tells the story of
the smallest part for which there is none. `storm` is a load that visits most of the table. Several processes write a
`FileLog` each; `read_logs` puts them together.
"""

from __future__ import annotations

from .check import Report, Violation, assert_linearizable, check
from .log import FileLog, Log, MemoryLog, mark_ended, read_log, read_logs
from .operation import Forget, Lookup, Operation, Read, Request, Scan
from .recorder import Recorder
from .storm import storm

__all__ = [
    "FileLog",
    "Forget",
    "Log",
    "Lookup",
    "MemoryLog",
    "Operation",
    "Read",
    "Recorder",
    "Report",
    "Request",
    "Scan",
    "Violation",
    "assert_linearizable",
    "check",
    "mark_ended",
    "read_log",
    "read_logs",
    "storm",
]
