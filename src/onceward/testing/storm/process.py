"""Worker processes as the supervisor sees them, and the two ways to start one: forked by a nursery, or Python anew."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Protocol, Self

from . import pipes as wire
from .contract import Setting
from .errors import Trouble
from .traffic import Delivery

FAREWELL = 10.0  # seconds for a worker that has nothing to do any more to end by itself
PROMPT = 5.0  # seconds for one that was killed


class Life(Protocol):
    """A process that was started."""

    @property
    def number(self) -> int:
        """Of the process."""
        ...

    def kill(self) -> None:
        """By SIGKILL."""
        ...

    def end(self, patience: float) -> int:
        """Its exit status, when it has ended; it is killed if it has not by then. May be asked again."""
        ...


class Fresh:
    """A Python of its own."""

    def __init__(self, system: str, inbox: int, outbox: int, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (our own worker)
            [sys.executable, "-m", "onceward.testing.storm.worker", system],
            env=environment(),
            stdin=inbox,
            stdout=outbox,
            stderr=log,
            start_new_session=True,  # as the nursery
        )

    @property
    def number(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def end(self, patience: float) -> int:
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


class Forked:
    """A child of the nursery."""

    def __init__(self, number: int, home: ForkServer) -> None:
        self.number = number
        self._home = home
        self._status: int | None = None

    def kill(self) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)

    def end(self, patience: float) -> int:
        if self._status is None:
            self._status = self._home.bury(self.number, patience)
        return self._status


class ForkServer:
    """The process that forks workers, if it can; else each of them is started anew. A context manager."""

    def __init__(self, system: str, log: IO[bytes]) -> None:
        self._system = system
        self._log = log
        self._line, self._theirs = socket.socketpair()
        self._asked = False  # and not answered yet: an interrupt came in between
        self._forks = False

    def __enter__(self) -> Self:
        with self._theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own nursery)
                [sys.executable, "-m", "onceward.testing.storm.fork_server", self._system, str(self._theirs.fileno())],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[self._theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the supervisor, which then ends the others
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever is left of the whole family ends here."""
        self._line.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open(self, patience: float) -> bool:
        """Wait until it has imported the system. False: it could not, and the log says why."""
        self._line.settimeout(patience)
        try:
            said = self._line.recv(wire.LARGEST)
        except TimeoutError:
            return False
        self._forks = said == wire.START and sys.platform != "darwin"  # there, not even unused libraries may fork
        return bool(said)

    def start(self, setting: Setting) -> Worker:
        """A worker that is about to open everything."""
        their_inbox, our_outbox = os.pipe()
        our_inbox, their_outbox = os.pipe()
        try:
            life: Life = (
                Forked(int(self._ask(wire.START, [their_inbox, their_outbox])), self)
                if self._forks
                else Fresh(self._system, their_inbox, their_outbox, self._log)
            )
        finally:
            os.close(their_inbox)
            os.close(their_outbox)
        return Worker(life, self, os.fdopen(our_outbox, "wb"), our_inbox, setting)

    def bury(self, number: int, patience: float) -> int:
        """The exit status of a worker. After an interrupt nobody asks: all of them are ended together."""
        if self._asked:
            return -signal.SIGKILL
        return int(self._ask(b"%s %d %f" % (wire.BURY, number, patience)))

    def pause(self, number: int) -> None:
        """Stop that process. Not sent by ourselves: if we are killed, somebody has to know who is to be continued."""
        self._ask(b"%s %d" % (wire.PAUSE, number))

    def wake(self, number: int) -> None:
        self._ask(b"%s %d" % (wire.WAKE, number))

    def _ask(self, request: bytes, pipes: Sequence[int] = ()) -> bytes:
        self._asked = True
        try:
            socket.send_fds(self._line, [request], pipes)
            answer = self._line.recv(wire.LARGEST)
        except OSError as error:
            raise Trouble(f"the process that starts the workers does not answer: {error!r}") from error
        if not answer:
            raise Trouble("the process that starts the workers is gone")
        self._asked = False
        return answer


class Worker:
    """One process, and the delivery that it has in hand."""

    def __init__(self, life: Life, home: ForkServer, inbox: IO[bytes], outbox: int, setting: Setting) -> None:
        self._life = life
        self._home = home
        self._lease = setting.lease
        self._inbox = inbox
        self.outbox = outbox
        self.in_hand: Delivery | None = None
        self.ready = False
        self.killed = False
        self.wakes_at: float | None = None
        """It is paused, until then."""
        self.is_late = False
        """It was paused, and what it has in hand is in other hands, too."""
        self._heard = b""
        self._buried: int | None = None
        self._write(wire.line(setting))

    def hand(self, delivery: Delivery) -> None:
        self.in_hand = delivery
        self._write(wire.line(delivery))

    def _write(self, text: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead already: its outbox will say so
            self._inbox.write(text)
            self._inbox.flush()

    def hear(self) -> list[wire.Answered] | None:
        """What it answered since; None if it is gone."""
        piece = os.read(self.outbox, 65536)
        if not piece:
            return None
        *lines, self._heard = (self._heard + piece).split(b"\n")
        return [wire.answered(text) for text in lines]

    def kill(self) -> None:
        self.killed = True
        self._life.kill()

    def pause(self, now: float, beyond: float) -> None:
        """For so much longer than its lease that others have taken over when it goes on, and it does not know."""
        self.wakes_at = now + self._lease + beyond
        self.is_late = True
        self._home.pause(self._life.number)

    def is_over(self, now: float) -> bool:
        """Its pause."""
        return self.wakes_at is not None and self.wakes_at <= now

    def wake(self) -> None:
        self.wakes_at = None
        self._home.wake(self._life.number)

    @property
    def is_free(self) -> bool:
        """For a delivery."""
        return self.ready and self.in_hand is None and self.wakes_at is None

    @property
    def is_busy(self) -> bool:
        """Also if it answered right before it was paused."""
        return self.in_hand is not None or self.wakes_at is not None

    @property
    def can_be_hit(self) -> bool:
        """A worker that comes back from a pause is let go on: that is what the pause was for."""
        return self.ready and not self.killed and not self.is_late and self.wakes_at is None

    def dismiss(self) -> None:
        """Nothing comes any more: it ends by itself."""
        with contextlib.suppress(BrokenPipeError):
            self._inbox.close()

    def bury(self, patience: float = PROMPT) -> int:
        """Its exit status."""
        if self._buried is None:
            self.dismiss()
            self._buried = self._life.end(patience)
            os.close(self.outbox)
        return self._buried


def environment() -> dict[str, str]:
    """What we can import, our workers can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
