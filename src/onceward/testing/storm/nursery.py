"""Where workers come from: a process that has imported the system forks one in a few milliseconds.

To start Python anew and import everything takes longer than most handlers, and a storm kills often. So the supervisor
asks this process, over a socket, one request at a time:

    start, with two pipes   → the process id of a new worker
    bury PID SECONDS        → its exit status; it is killed if it has not ended by then

A worker that is dead stays unburied until it is asked for, so that no other process can get its number meanwhile.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

from .finding import find_system
from .wire import LARGEST, START, THREADS
from .worker import own_pipes, work

BETWEEN_LOOKS = 0.005


def serve(line: socket.socket) -> bool:
    """Answer until the supervisor hangs up. True: this is a worker now, its pipes are standard input and output."""
    while True:
        request, pipes, _, _ = socket.recv_fds(line, LARGEST, 2)
        if not request:
            return False
        if request == START:
            worker = os.fork()
            if not worker:
                _become_worker(pipes)
                return True
            for pipe in pipes:
                os.close(pipe)
            line.sendall(b"%d" % worker)
        else:
            _, worker_text, seconds = request.split()
            line.sendall(b"%d" % _buried(int(worker_text), float(seconds)))


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
            return
        line.sendall(START)
        if not serve(line):
            return
    work(place, *own_pipes())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
