"""A worker process as the supervisor sees it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import IO

from . import wire
from .contract import Setting
from .traffic import Delivery

FAREWELL = 10.0  # seconds for a worker that has nothing to do any more to end by itself


class Worker:
    """One process, and the delivery that it has in hand."""

    def __init__(self, system: str, setting: Setting, log: IO[bytes]) -> None:
        self.process = subprocess.Popen(  # noqa: S603 (our own worker)
            [sys.executable, "-m", "onceward.testing.storm.worker", system],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # what we can import, it can
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is for the supervisor, which then ends the others
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._inbox = self.process.stdin
        self.outbox = self.process.stdout
        self.in_hand: Delivery | None = None
        self.ready = False
        self.killed = False
        self._heard = b""
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
        piece = os.read(self.outbox.fileno(), 65536)
        if not piece:
            return None
        *lines, self._heard = (self._heard + piece).split(b"\n")
        return [wire.answered(text) for text in lines]

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def dismiss(self) -> None:
        """Nothing comes any more: it ends by itself."""
        with contextlib.suppress(BrokenPipeError):
            self._inbox.close()

    def bury(self, patience: float | None = None) -> int:
        """Waits for its end, and kills it if that takes too long. Its exit status."""
        self.dismiss()
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()
        finally:
            self.outbox.close()
