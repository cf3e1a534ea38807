"""Run a command as a child process: stream and capture its output, forward signals, and kill it if we die."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, BinaryIO, NamedTuple

from .child_guard import DISMISS

CHUNK_SIZE = 1 << 16
POLL_INTERVAL = 0.2  # seconds between checks of our lease and of the stop deadline
GRACE = 10.0  # seconds that a command has to exit after a signal; as with docker stop
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))


class Interrupted(KeyboardInterrupt):
    """A signal arrived while no command was running."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class CapturedStream:
    """An output stream of the command: forwarded immediately, and the first `limit` bytes captured."""

    def __init__(self, sink: BinaryIO, limit: int) -> None:
        self._sink: BinaryIO | None = sink
        self._limit = limit
        self.size = 0
        self.data = bytearray()

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.data += chunk[: max(0, self._limit - len(self.data))]
        if self._sink is not None:
            try:
                self._sink.write(chunk)
                self._sink.flush()
            except OSError:  # the reader is gone; the command continues, because later calls replay its output
                discard_output(self._sink)
                self._sink = None


def discard_output(stream: BinaryIO) -> None:
    """Redirect the stream to /dev/null, so that Python does not fail to flush it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class ExitResult(NamedTuple):
    """How the command ended. `status` is negative for a signal; `error` is the errno if it could not be started."""

    status: int
    stop: int = 0
    error: int = 0


class SignalForwarder:
    """Handle signals: stop before the command starts, forward while it runs, and finish recording afterwards.

    A second signal while recording calls `give_up`, because the store may not respond for long.
    """

    def __init__(self, give_up: Callable[[int], None]) -> None:
        self._give_up = give_up
        self.group: int | None = None
        self.first = 0
        self.deadline = float("inf")
        self._starting = False
        self._recording = False
        self._pending: list[int] = []

    def starting(self) -> None:
        """Keep signals until the command has started and they can be forwarded."""
        self._starting = True

    def started(self, group: int) -> None:
        self.group, self._starting = group, False
        for number in self._pending:
            self._forward(group, number)
        self._pending.clear()

    def finished(self) -> None:
        """The command has ended, or could not be started."""
        self._starting, self._recording = False, True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # respects nohup
        for number in handled:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number in handled:
                signal.signal(number, before[number])

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._starting:
            self._pending.append(number)
        elif self._recording:
            self._pending.append(number)
            if len(self._pending) > 1:
                self._give_up(number)
        elif self.group is None:
            raise Interrupted(number)
        else:
            self._forward(self.group, number)

    def _forward(self, group: int, number: int) -> None:
        kill(group, signal.SIGKILL if self.first else number)
        self.first = self.first or number
        self.deadline = min(self.deadline, time.monotonic() + GRACE)


def kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def run_child(
    command: Sequence[str],
    stops: SignalForwarder,
    streams: tuple[CapturedStream, CapturedStream],
    check: Callable[[], None],
    environment: Mapping[str, str] | None = None,
) -> ExitResult:
    """Run the command until it exits and its output ends. `check` raises if our claim is lost; then kill it."""
    lifeline, lifeline_writer = os.pipe()
    status_reader, status_writer = os.pipe()
    stdin = subprocess.DEVNULL if sys.__stdin__ is None or sys.__stdin__.isatty() else None
    stops.starting()
    try:
        guard = subprocess.Popen(  # noqa: S603 (running the user's command is the purpose)
            [
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("child_guard.py")),
                str(lifeline),
                str(status_writer),
                *command,
            ],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(lifeline, status_writer),
            start_new_session=True,
            env=environment,
        )
    except BaseException:
        stops.finished()
        os.close(status_reader)
        os.close(lifeline_writer)
        raise
    finally:
        os.close(lifeline)
        os.close(status_writer)
    with (
        guard,
        os.fdopen(status_reader, "rb", buffering=0) as status_pipe,
        os.fdopen(lifeline_writer, "wb", buffering=0) as owner_end,
    ):
        stops.started(guard.pid)
        try:
            ended = _follow(guard, status_pipe, stops, streams, check)
        except BaseException:
            kill(guard.pid, signal.SIGKILL)
            raise
        finally:
            stops.finished()
        with contextlib.suppress(BrokenPipeError):
            owner_end.write(DISMISS)
    return ended


def _follow(
    guard: subprocess.Popen[bytes],
    status_pipe: IO[bytes],
    stops: SignalForwarder,
    streams: tuple[CapturedStream, CapturedStream],
    check: Callable[[], None],
) -> ExitResult:
    report = b""
    with selectors.DefaultSelector() as selector:
        for source, sink in ((guard.stdout, streams[0]), (guard.stderr, streams[1]), (status_pipe, None)):
            selector.register(source, selectors.EVENT_READ, sink)  # type: ignore[arg-type]  # they are pipes
        while selector.get_map():
            for key, _ in selector.select(POLL_INTERVAL):
                chunk = os.read(key.fd, CHUNK_SIZE)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data is None:
                    report += chunk
                else:
                    key.data.add(chunk)
            check()
            if time.monotonic() > stops.deadline:
                kill(guard.pid, signal.SIGKILL)
                stops.deadline = float("inf")
    return _exit_result(report, guard.pid, stops.first)


def _exit_result(report: bytes, group: int, stop: int) -> ExitResult:
    what, _, number = report.partition(b" ")
    if what == b"ended":
        return ExitResult(int(number), stop)
    if what == b"error":
        return ExitResult(0, stop, int(number))
    kill(group, signal.SIGKILL)  # the guard itself was killed: kill the rest of its group
    return ExitResult(-signal.SIGKILL, stop)
