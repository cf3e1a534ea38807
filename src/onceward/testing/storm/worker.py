"""A worker process: `python -m onceward.testing.storm.worker module:SYSTEM`.

It reads the setting and then deliveries from standard input.
It may be killed at any point. The result, which acknowledges the delivery, is sent only after the handler has returned.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import IO

from msgspec import json

from . import pipes as messages
from .contract import HandlerResult, StormSetting
from .find_system import find_system
from .traffic import StormDelivery

log = logging.getLogger(__name__)


def work(path: str, inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Process deliveries until the supervisor closes the pipe, or is gone."""
    handle = find_system(path).worker(json.decode(inbox.readline(), type=StormSetting))
    send_result(outbox, messages.DeliveryResult(messages.READY, HandlerResult("executed")))
    for text in inbox:
        delivery = json.decode(text, type=StormDelivery)
        try:
            result = handle(delivery.event)
        except Exception as error:
            log.exception("delivery %s of %s", delivery.number, delivery.event.id)
            result = HandlerResult("failed", why=repr(error))
        send_result(outbox, messages.DeliveryResult(delivery.number, result))


def send_result(outbox: IO[bytes], result: messages.DeliveryResult) -> None:
    outbox.write(messages.encode_line(result))
    outbox.flush()


def take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes to the supervisor, and redirect standard output to the log: the system may print."""
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return inbox, outbox


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    work(sys.argv[1], *take_pipes())
