"""A worker: `python -m onceward.testing.storm.worker module:SYSTEM`, the setting and then deliveries on standard input.

It may die anywhere in here. The answer, which acknowledges the delivery, is only sent after the handler returned.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import IO

from . import pipes as wire
from .contract import Answer
from .find_system import find_system

log = logging.getLogger(__name__)


def work(place: str, inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Until the supervisor closes the pipe, or is gone."""
    handle = find_system(place).worker(wire.setting(inbox.readline()))
    say(outbox, wire.Answered(wire.READY, Answer("executed")))
    for text in inbox:
        delivery = wire.delivery(text)
        try:
            answer = handle(delivery.event)
        except Exception as error:
            log.exception("delivery %s of %s", delivery.number, delivery.event.id)
            answer = Answer("failed", why=repr(error))
        say(outbox, wire.Answered(delivery.number, answer))


def say(outbox: IO[bytes], answered: wire.Answered) -> None:
    outbox.write(wire.line(answered))
    outbox.flush()


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the supervisor, out of reach of the system: what it prints goes to the log instead."""
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    work(sys.argv[1], *own_pipes())
