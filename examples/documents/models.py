"""Extract the fields of a document with models behind an HTTP API: first a cheap model, then a strong one.

Each answer is checked, and the next request says what was wrong.
"""

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
PROMPT: Final = (
    "Answer with one JSON object and nothing else: the invoice's id, the company that wrote it, its date as YYYY-MM-DD,"
    " and its total in cents as a number: {id, company, date, cents}.\n\n"
)
RETRY_STATUS: Final = (429, 503)
MAX_CENTS: Final = 10**15
"""A larger total is implausible, and would eventually overflow an integer column."""
MAX_PAUSE: Final = 60.0  # seconds
ANSWER_TIMEOUT: Final = 1_200.0  # seconds: longer than the lease, which the heartbeat renews in the meantime


class Invoice(Struct, frozen=True):
    """The fields to extract from a document."""

    id: str
    company: str
    date: str
    cents: int


class Unreadable(Exception):
    """No model could read the document. Another attempt would cost money and change nothing."""


class Models:
    """A client for `generateContent`, as in the Gemini API. It retries 429 and 503 for up to `retry_for` seconds.

    `cheap` and `strong` are the names of the models.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        cheap: str = CHEAP,
        strong: str = STRONG,
        pause: float = 1.0,
        retry_for: float = 3_600.0,
    ) -> None:
        self.order = (cheap, cheap, strong)
        """The models, in order, until an answer is right. The cheap model may correct itself once."""

        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", "x-goog-api-key": key}
        self._pause = pause
        self._retry_for = retry_for

    def ask(self, model: str, turns: list[str], check: Callable[[], None]) -> str:
        """Return the answer to a conversation. `check` runs before each request: a replaced worker stops there."""
        roles = ("user", "model") * len(turns)
        contents = [{"role": role, "parts": [{"text": turn}]} for role, turn in zip(roles, turns, strict=False)]
        request = urllib.request.Request(  # noqa: S310 (the URL is the operator's)
            f"{self._url}/v1beta/models/{model}:generateContent",
            msgspec.json.encode({"contents": contents, "generationConfig": {"responseMimeType": "application/json"}}),
            self._headers,
        )
        pause, ends = self._pause, time.monotonic() + self._retry_for
        while True:
            check()
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT) as reply:  # noqa: S310 (as above)
                    return _text_in(reply.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in RETRY_STATUS or time.monotonic() > ends:
                        raise
                    asked = max(_seconds(error.headers.get("Retry-After", "")), _retry_delay(error.read()))
                    wait = max(asked, pause * (0.5 + random.random()))
            time.sleep(wait)
            pause = min(2 * pause, MAX_PAUSE)


def extract(models: Models, text: str, check: Callable[[], None]) -> Invoice:
    """Ask the models in order, telling each what was wrong with the last answer, until an answer is right."""
    turns = [PROMPT + text]
    wrong = ["no text"] if not text else []
    for model in models.order if text else ():
        answer = models.ask(model, turns, check)
        found, wrong = checked(answer, text)
        if found is not None:
            return found
        turns += [answer, f"That is wrong: {'; '.join(wrong)}. Answer again, with the JSON object alone."]
    raise Unreadable("; ".join(wrong))


def checked(answer: str, text: str) -> tuple[Invoice | None, list[str]]:
    """Return the invoice, or what is wrong with the answer."""
    try:
        found = msgspec.json.decode(answer, type=Invoice)
    except (msgspec.MsgspecError, RecursionError) as error:
        return None, [str(error)]
    wrong = [f"{name} is not in the document" for name in ("id", "company") if getattr(found, name, "") not in text]
    wrong += [f"{name} is empty" for name in ("id", "company") if not getattr(found, name).strip()]
    if not _is_date(found.date):
        wrong.append("date is not YYYY-MM-DD")
    if not 0 < found.cents <= MAX_CENTS:
        wrong.append("cents is not a plausible positive number")
    return (None, wrong) if wrong else (found, [])


def _is_date(text: str) -> bool:
    """Whether the text is YYYY-MM-DD: `fromisoformat` alone also accepts `20260301` and weeks."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _text_in(reply: bytes) -> str:
    """Return the model's answer, without its thoughts. If the API blocks the answer, that is a wrong answer."""
    try:
        parts = msgspec.json.decode(reply)["candidates"][0]["content"]["parts"]
        text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    except (LookupError, TypeError, AttributeError):
        text = ""
    return text or "(no answer)"


def _retry_delay(body: bytes) -> float:
    """Return how many seconds an error asks to wait: `RetryInfo` in its details, such as `"retryDelay": "31s"`."""
    try:
        details = msgspec.json.decode(body)["error"]["details"]
        delays = [one["retryDelay"] for one in details if "retryDelay" in one]
        return max((float(delay.removesuffix("s")) for delay in delays), default=0.0)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError):
        return 0.0


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0  # a date would need the server's clock, so it is ignored
