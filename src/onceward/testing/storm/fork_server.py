"""Where workers come from: a process that has imported the system forks one in a few milliseconds.

To start Python anew and import everything takes longer than most handlers, and a storm kills often. So the supervisor
asks this process, over a socket, one request at a time:

    start, with two pipes   → the process id of a new worker
    bury PID SECONDS        → its exit status; it is killed if it has not ended by then
    pause PID, wake PID     → the same again: it is stopped, and continued

Who is paused does not see that its supervisor is gone, so whoever still is when that hangs up is continued here.
A worker that is dead stays unburied until it is asked for, so that no other process can get its number meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time

from .find_system import find_system
from .pipes import BURY, LARGEST, PAUSE, START, THREADS, WAKE
from .worker import own_pipes, work

BETWEEN_LOOKS = 0.005


def serve(line: socket.socket) -> bool:
    """Answer until the supervisor hangs up. True: this is a worker now, its pipes are standard input and output."""
    paused: set[int] = set()
    while True:
        request, pipes, _, _ = socket.recv_fds(line, LARGEST, 2)
        if not request:
            for worker in paused:
                _send(worker, signal.SIGCONT)
            return False
        word, *told = request.split()
        if word == START:
            worker = os.fork()
            if not worker:
                _become_worker(pipes)
                return True
            for pipe in pipes:
                os.close(pipe)
            line.sendall(b"%d" % worker)
            continue
        worker = int(told[0])
        if word == BURY:
            paused.discard(worker)
            line.sendall(b"%d" % _buried(worker, float(told[1])))
        elif word == PAUSE:
            paused.add(worker)
            _send(worker, signal.SIGSTOP)
            line.sendall(request)
        elif word == WAKE:
            paused.discard(worker)
            _send(worker, signal.SIGCONT)
            line.sendall(request)


def _send(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, number)


def _become_worker(pipes: list[int]) -> None:
    for pipe, standard in zip(pipes, (0, 1), strict=True):
        os.dup2(pipe, standard)
        os.close(pipe)


def _buried(worker: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        gone, status = os.waitpid(worker, os.WNOHANG)
        if gone:
            return os.waitstatus_to_exitcode(status)
        time.sleep(BETWEEN_LOOKS)
    os.kill(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def main(place: str, number: int) -> None:
    """The socket is at that file descriptor. The first word says whether this process can fork at all."""
    import logging

    logging.basicConfig(level=logging.WARNING)
    find_system(place)
    with socket.socket(fileno=number) as line:
        if threading.active_count() > 1:  # they would be missing in a fork, and what they hold would be held for ever
            line.sendall(THREADS)
        else:
            line.sendall(START)
        if not serve(line):
            return
    work(place, *own_pipes())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
