"""The fork server: a process that has imported the system, and forks a worker in a few milliseconds.

Starting Python and importing everything takes longer than most handlers, and a storm kills often. If the system has
threads, this process cannot fork, and starts a new Python for each worker. The supervisor sends requests over a socket,
one at a time:

    start, with two pipes   → the process id of a new worker
    wait PID SECONDS        → its exit status; it is killed if it has not ended by then
    pause PID, resume PID   → the request itself; the process is stopped or continued

A paused worker does not notice that the supervisor is gone. So when the supervisor closes the socket, this process
resumes all paused workers. A dead worker stays a zombie until `wait`, so that no other process can get its id.
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
from .pipes import MAX_MESSAGE, PAUSE, RESUME, START, WAIT
from .worker import take_pipes, work

POLL_INTERVAL = 0.005


def serve(connection: socket.socket, path: str) -> bool:
    """Serve requests until the supervisor closes the socket.

    Return True in a forked worker, whose pipes are standard input and output.
    """
    # A fork has only one thread, and locks of the others stay locked. On macOS, even unused libraries may break a fork.
    forks = threading.active_count() == 1 and sys.platform != "darwin"
    paused: set[int] = set()
    while True:
        request, pipes, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 2)
        if not request:
            for worker in paused:
                _send(worker, signal.SIGCONT)
            return False
        word, *arguments = request.split()
        if word == START:
            worker = os.fork() if forks else _spawn(path, pipes)
            if not worker:
                _become_worker(pipes)
                return True
            for pipe in pipes:
                os.close(pipe)
            connection.sendall(b"%d" % worker)
            continue
        worker = int(arguments[0])
        if word == WAIT:
            paused.discard(worker)
            connection.sendall(b"%d" % _wait_for(worker, float(arguments[1])))
        elif word == PAUSE:
            paused.add(worker)
            _send(worker, signal.SIGSTOP)
            connection.sendall(request)
        elif word == RESUME:
            paused.discard(worker)
            _send(worker, signal.SIGCONT)
            connection.sendall(request)


def _send(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, number)


def _become_worker(pipes: list[int]) -> None:
    for pipe, standard in zip(pipes, (0, 1), strict=True):
        os.dup2(pipe, standard)
        os.close(pipe)


def _spawn(path: str, pipes: list[int]) -> int:
    command = [sys.executable, "-m", "onceward.testing.storm.worker", path]
    moved = [(os.POSIX_SPAWN_DUP2, pipe, standard) for pipe, standard in zip(pipes, (0, 1), strict=True)]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=moved)


def _wait_for(worker: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        gone, status = os.waitpid(worker, os.WNOHANG)
        if gone:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_INTERVAL)
    os.kill(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def main(path: str, number: int) -> None:
    """Serve on the socket with this file descriptor. The first message says that the system was imported."""
    import logging

    logging.basicConfig(level=logging.WARNING)
    find_system(path)
    with socket.socket(fileno=number) as connection:
        connection.set_inheritable(False)
        connection.sendall(START)
        if not serve(connection, path):
            return
    work(path, *take_pipes())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
