"""Record histories of real concurrent runs, and check that every key is linearizable.

    log = MemoryLog()
    store = Recorder(MyStore(…), log)
    ...                                   # use the store in threads, tasks or processes
    assert_linearizable(log.operations())

`Recorder` wraps any store and records each request with the times of its call and its return. `check` searches
for an order of each key's operations that respects real time and that the state table explains. If there is none, it
explains the smallest part of the history that shows the contradiction. `storm` is a workload that visits most of the
table. If several processes are involved, each writes its own `FileLog`; `read_logs` combines them.
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
