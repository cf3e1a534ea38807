"""What a fleet of services says about itself, and how a transport delivers it: late, twice, and published again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from examples.fleet.message import Message

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
SERVICES = ("billing", "search", "strategy_engine", "mail", "login")
ENVIRONMENTS = ("prod", "staging")
STATUSES = ("ok", "ok", "degraded", "down")


def history(size: int, dice: random.Random) -> list[Message]:
    """Every event once, the oldest first. Several of one service share a second; their sequence tells them apart."""
    return [_heartbeat(number, dice) for number in range(size)]


def _heartbeat(number: int, dice: random.Random) -> Message:
    happened = START + timedelta(seconds=number // 40)
    payload: dict[str, Any] = {
        "service": dice.choice(SERVICES),
        "env": dice.choice(ENVIRONMENTS),
        "status": dice.choice(STATUSES),
        "version": f"1.{number % 7}",
        "producedAt": happened.isoformat(),
        "sequence": number,
        "eventId": f"event-{number}",
    }
    return Message(f"{700_000 + number}", (happened + timedelta(milliseconds=80)).isoformat(), payload)


def delivered(messages: list[Message], dice: random.Random) -> list[Message]:
    """In any order; a third twice, and a sixth published again under another message id."""
    again = dice.choices(messages, k=len(messages) // 3)
    republished = [
        Message(f"9{message.id}", message.published_at, message.payload)
        for message in dice.choices(messages, k=len(messages) // 6)
    ]
    traffic = [*messages, *again, *republished]
    dice.shuffle(traffic)
    return traffic


def truth(messages: list[Message]) -> dict[tuple[str, str], str]:
    """By environment and service: the last status, as somebody knows who saw everything in order."""
    return {(one.payload["env"], one.payload["service"]): one.payload["status"] for one in messages}
