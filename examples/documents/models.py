"""What a document says, by models behind an HTTP API: a cheap one first, told what is wrong, then the strong one."""

from __future__ import annotations

import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import date
from typing import Final

import msgspec
from msgspec import Struct

CHEAP: Final = "gemini-2.5-flash"
STRONG: Final = "gemini-2.5-pro"
PLAN: Final = (CHEAP, CHEAP, STRONG)
"""Who is asked in turn, as long as the answer is wrong: the cheap one may correct itself once."""

PROMPT: Final = (
    "Answer with one JSON object and nothing else: the invoice's id, the company that wrote it, its date as YYYY-MM-DD,"
    " and its total in cents as a number: {id, company, date, cents}.\n\n"
)
BUSY: Final = (429, 503)
MOST: Final = 10**15
"""Cents: more is no invoice, and too much for a column of integers before long."""
LONGEST_PAUSE: Final = 60.0  # seconds
LONGEST_ANSWER: Final = 1_200.0  # seconds: longer than the lease, which is renewed meanwhile


class Invoice(Struct, frozen=True):
    """What is wanted of a document."""

    id: str
    company: str
    date: str
    cents: int


class Unreadable(Exception):
    """No model could make sense of the document: to ask again would cost, and change nothing."""


class Models:
    """Speaks `generateContent`, as the API of Gemini does. Waits when it is told to, for as long as `patience` says."""

    def __init__(self, url: str, key: str = "", *, pause: float = 1.0, patience: float = 3_600.0) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", "x-goog-api-key": key}
        self._pause = pause
        self._patience = patience

    def ask(self, model: str, turns: list[str], check: Callable[[], None]) -> str:
        """The answer to a conversation. `check` is called before each request: who was replaced asks no more."""
        roles = ("user", "model") * len(turns)
        contents = [{"role": role, "parts": [{"text": turn}]} for role, turn in zip(roles, turns, strict=False)]
        request = urllib.request.Request(  # noqa: S310 (the URL is the operator's)
            f"{self._url}/v1beta/models/{model}:generateContent",
            msgspec.json.encode({"contents": contents}),
            self._headers,
        )
        pause, ends = self._pause, time.monotonic() + self._patience
        while True:
            check()
            try:
                with urllib.request.urlopen(request, timeout=LONGEST_ANSWER) as reply:  # noqa: S310 (as above)
                    return _text_in(reply.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in BUSY or time.monotonic() > ends:
                        raise
                    wait = max(_seconds(error.headers.get("Retry-After", "")), pause * (0.5 + random.random()))
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)


def extract(models: Models, text: str, check: Callable[[], None]) -> Invoice:
    """Ask, look whether the answer can be true, and say what is wrong with it, until it is right or nobody is left."""
    turns = [PROMPT + text]
    wrong = ["no text"] if not text else []
    for model in PLAN if text else ():
        answer = models.ask(model, turns, check)
        found, wrong = checked(answer, text)
        if found is not None:
            return found
        turns += [answer, f"That is wrong: {'; '.join(wrong)}. Answer again, with the JSON object alone."]
    raise Unreadable("; ".join(wrong))


def checked(answer: str, text: str) -> tuple[Invoice | None, list[str]]:
    """The invoice, or what is wrong with the answer."""
    try:
        found = msgspec.json.decode(answer, type=Invoice)
    except (msgspec.MsgspecError, RecursionError) as error:
        return None, [str(error)]
    wrong = [f"{name} is not in the document" for name in ("id", "company") if getattr(found, name, "") not in text]
    wrong += [f"{name} is empty" for name in ("id", "company") if not getattr(found, name).strip()]
    if not _is_date(found.date):
        wrong.append("date is not YYYY-MM-DD")
    if not 0 < found.cents <= MOST:
        wrong.append("cents is not a positive number that can be true")
    return (None, wrong) if wrong else (found, [])


def _is_date(text: str) -> bool:
    """`fromisoformat` takes `20260301` and weeks, too."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _text_in(reply: bytes) -> str:
    """What the model said. An API that blocks an answer sends none: that is a wrong answer, and no passing trouble."""
    try:
        text = msgspec.json.decode(reply)["candidates"][0]["content"]["parts"][0]["text"]
    except (LookupError, TypeError):
        text = None
    return text if isinstance(text, str) else "(no answer)"


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0  # a date would need the server's clock: our own pause will do
