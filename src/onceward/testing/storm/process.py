"""Worker processes, as the supervisor sees them. The fork server starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Self

from . import pipes as messages
from .contract import StormSetting, Trouble
from .traffic import StormDelivery

EXIT_TIMEOUT = 10.0  # seconds for an idle worker to exit by itself
KILL_TIMEOUT = 5.0  # seconds for a killed worker to be gone


class ForkServer:
    """The process that starts the workers. A context manager."""

    def __init__(self, system: str, log: IO[bytes]) -> None:
        self._system = system
        self._log = log
        self._socket, self._child_socket = socket.socketpair()
        self._awaiting_reply = False  # True after an interrupt between a request and its reply

    def __enter__(self) -> Self:
        with self._child_socket:
            self._process = subprocess.Popen(  # noqa: S603 (our own fork server)
                [
                    sys.executable,
                    "-m",
                    "onceward.testing.storm.fork_server",
                    self._system,
                    str(self._child_socket.fileno()),
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # import as here
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[self._child_socket.fileno()],
                start_new_session=True,  # a Ctrl-C reaches only the supervisor, which then ends the others
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the fork server and all workers that are left."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open(self, timeout: float) -> bool:
        """Wait until the fork server has imported the system. Return False if it could not; see the log."""
        self._socket.settimeout(timeout)
        try:
            return bool(self._socket.recv(messages.MAX_MESSAGE))
        except TimeoutError:
            return False

    def start(self, setting: StormSetting) -> Worker:
        """Start a worker. It is not ready yet."""
        their_inbox, our_outbox = os.pipe()
        our_inbox, their_outbox = os.pipe()
        try:
            number = int(self.request(messages.START, [their_inbox, their_outbox]))
        finally:
            os.close(their_inbox)
            os.close(their_outbox)
        return Worker(number, self, os.fdopen(our_outbox, "wb"), our_inbox, setting)

    def wait(self, number: int, timeout: float) -> int:
        """Return the exit status of a worker. After an interrupt, do not ask: all workers are killed together."""
        if self._awaiting_reply:
            return -signal.SIGKILL
        return int(self.request(b"%s %d %f" % (messages.WAIT, number, timeout)))

    def request(self, request: bytes, pipes: Sequence[int] = ()) -> bytes:
        self._awaiting_reply = True
        try:
            socket.send_fds(self._socket, [request], pipes)
            answer = self._socket.recv(messages.MAX_MESSAGE)
        except OSError as error:
            raise Trouble(f"the process that starts the workers does not reply: {error!r}") from error
        if not answer:
            raise Trouble("the process that starts the workers has ended")
        self._awaiting_reply = False
        return answer


class Worker:
    """One worker process, and the delivery that it is processing."""

    def __init__(
        self, number: int, fork_server: ForkServer, inbox: IO[bytes], outbox: int, setting: StormSetting
    ) -> None:
        self._number = number
        self._fork_server = fork_server
        self._lease = setting.lease
        self._inbox = inbox
        self.outbox = outbox
        self.current: StormDelivery | None = None
        self.ready = False
        self.killed = False
        self.resumes_at: float | None = None
        """The end of its pause; None if it is not paused."""
        self.is_late = False
        """It was paused, and its current delivery was given to another worker, too."""
        self._buffer = b""
        self._status: int | None = None
        self._write(messages.encode_line(setting))

    def send(self, delivery: StormDelivery) -> None:
        self.current = delivery
        self._write(messages.encode_line(delivery))

    def _write(self, text: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead: reading its outbox will show that
            self._inbox.write(text)
            self._inbox.flush()

    def receive(self) -> list[messages.DeliveryResult] | None:
        """Return the results since the last call, or None if the worker is gone."""
        piece = os.read(self.outbox, 65536)
        if not piece:
            return None
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        return [messages.decode_result(text) for text in lines]

    def kill(self) -> None:
        self.killed = True
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._number, signal.SIGKILL)

    def pause(self, now: float, beyond: float) -> None:
        """Stop the worker for longer than its lease, so that others have taken over when it resumes.

        The fork server stops it. So if this process is killed, the fork server knows which workers to resume.
        """
        self.resumes_at = now + self._lease + beyond
        self.is_late = True
        self._fork_server.request(b"%s %d" % (messages.PAUSE, self._number))

    def pause_is_over(self, now: float) -> bool:
        """Return whether its pause has ended."""
        return self.resumes_at is not None and self.resumes_at <= now

    def resume(self) -> None:
        self.resumes_at = None
        self._fork_server.request(b"%s %d" % (messages.RESUME, self._number))

    @property
    def is_free(self) -> bool:
        """Whether it can take a delivery."""
        return self.ready and self.current is None and self.resumes_at is None

    @property
    def is_busy(self) -> bool:
        """Whether it has a delivery or is paused. It may have sent its result right before the pause."""
        return self.current is not None or self.resumes_at is not None

    @property
    def is_eligible(self) -> bool:
        """Whether it may be killed or paused.

        A worker that resumes from a pause may not: it must finish its delivery.
        """
        return self.ready and not self.killed and not self.is_late and self.resumes_at is None

    def close_input(self) -> None:
        """Close the pipe to the worker, so that it exits by itself."""
        with contextlib.suppress(BrokenPipeError):
            self._inbox.close()

    def wait(self, timeout: float = KILL_TIMEOUT) -> int:
        """Wait for the worker and return its exit status."""
        if self._status is None:
            self.close_input()
            self._status = self._fork_server.wait(self._number, timeout)
            os.close(self.outbox)
        return self._status
