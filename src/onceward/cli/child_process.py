"""One command as a child: its output streamed and kept, its signals passed on, its life bound to ours."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, BinaryIO, NamedTuple

from .child_guard import DISMISSED

CHUNK = 1 << 16
LOOK = 0.2  # seconds between looks at our lease and at the deadline of a stop
GRACE = 10.0  # seconds that a command has to end itself after a signal; what docker gives, too
STOPS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))


class Interrupted(KeyboardInterrupt):
    """A signal came while no command was running."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Kept:
    """A stream of the command: shown at once, and the first `most` bytes kept."""

    def __init__(self, shown: BinaryIO, most: int) -> None:
        self._shown: BinaryIO | None = shown
        self._most = most
        self.size = 0
        self.data = bytearray()

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.data += chunk[: max(0, self._most - len(self.data))]
        if self._shown is not None:
            try:
                self._shown.write(chunk)
                self._shown.flush()
            except OSError:  # nobody reads on; the command goes on all the same, because others want its output
                silence(self._shown)
                self._shown = None


def silence(stream: BinaryIO) -> None:
    """Whatever is still in its buffer goes nowhere, without a complaint at the end of the process."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Ended(NamedTuple):
    """How the command ended. `status` is negative for a signal; `error` says why it was never begun."""

    status: int
    stop: int = 0
    error: int = 0


class Stops:
    """What a signal to us means: before the command we stop; while it runs it is passed on; then we first record.

    The second of two signals while we record makes us give up: the store may be silent for long.
    """

    def __init__(self, give_up: Callable[[int], None]) -> None:
        self._give_up = give_up
        self.group: int | None = None
        self.first = 0
        self.deadline = float("inf")
        self._starting = False
        self._recording = False
        self._kept: list[int] = []

    def starting(self) -> None:
        """Keep signals from now on, until there is somebody to pass them on to."""
        self._starting = True

    def started(self, group: int) -> None:
        self.group, self._starting = group, False
        for number in self._kept:
            self._pass_on(group, number)
        self._kept.clear()

    def over(self) -> None:
        """The command has ended, or could not be started."""
        self._starting, self._recording = False, True

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        before = {one: signal.getsignal(one) for one in STOPS}
        ours = [one for one, handler in before.items() if handler is not signal.SIG_IGN]  # nohup stays nohup
        for one in ours:
            signal.signal(one, self._on_signal)
        try:
            yield
        finally:
            for one in ours:
                signal.signal(one, before[one])

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._starting:
            self._kept.append(number)
        elif self._recording:
            self._kept.append(number)
            if len(self._kept) > 1:
                self._give_up(number)
        elif self.group is None:
            raise Interrupted(number)
        else:
            self._pass_on(self.group, number)

    def _pass_on(self, group: int, number: int) -> None:
        kill(group, signal.SIGKILL if self.first else number)
        self.first = self.first or number
        self.deadline = min(self.deadline, time.monotonic() + GRACE)


def kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def perform(command: Sequence[str], stops: Stops, streams: tuple[Kept, Kept], check: Callable[[], None]) -> Ended:
    """Run it to its end, and to the end of its output. `check` raises if our claim is lost; then the command dies."""
    lifeline, ours = os.pipe()
    told, status = os.pipe()
    stdin = subprocess.DEVNULL if sys.__stdin__ is None or sys.__stdin__.isatty() else None
    stops.starting()
    try:
        guard = subprocess.Popen(  # noqa: S603 (running what we are told to is the point)
            [
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("child_guard.py")),
                str(lifeline),
                str(status),
                *command,
            ],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(lifeline, status),
            start_new_session=True,
        )
    except BaseException:
        stops.over()
        os.close(told)
        os.close(ours)
        raise
    finally:
        os.close(lifeline)
        os.close(status)
    with guard, os.fdopen(told, "rb", buffering=0) as word, os.fdopen(ours, "wb", buffering=0) as line:
        stops.started(guard.pid)
        try:
            ended = _follow(guard, word, stops, streams, check)
        except BaseException:
            kill(guard.pid, signal.SIGKILL)
            raise
        finally:
            stops.over()
        with contextlib.suppress(BrokenPipeError):
            line.write(DISMISSED)
    return ended


def _follow(
    guard: subprocess.Popen[bytes],
    word: IO[bytes],
    stops: Stops,
    streams: tuple[Kept, Kept],
    check: Callable[[], None],
) -> Ended:
    said = b""
    with selectors.DefaultSelector() as selector:
        for source, sink in ((guard.stdout, streams[0]), (guard.stderr, streams[1]), (word, None)):
            selector.register(source, selectors.EVENT_READ, sink)  # type: ignore[arg-type]  # pipes were asked for
        while selector.get_map():
            for key, _ in selector.select(LOOK):
                chunk = os.read(key.fd, CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data is None:
                    said += chunk
                else:
                    key.data.add(chunk)
            check()
            if time.monotonic() > stops.deadline:
                kill(guard.pid, signal.SIGKILL)
                stops.deadline = float("inf")
    return _ended(said, guard.pid, stops.first)


def _ended(said: bytes, group: int, stop: int) -> Ended:
    what, _, number = said.partition(b" ")
    if what == b"ended":
        return Ended(int(number), stop)
    if what == b"error":
        return Ended(0, stop, int(number))
    kill(group, signal.SIGKILL)  # the guard itself was killed: nobody must be left of its group
    return Ended(-signal.SIGKILL, stop)
