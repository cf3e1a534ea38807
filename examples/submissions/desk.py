"""The underwriting desk: triage, a paid look at the company, a price. Once per submission, in threads and in tasks."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from examples.submissions.book import Book
from examples.submissions.rules import SAME_SUBMISSION, Quote, Submission, price, triage
from onceward import Once
from onceward.http.client_keys import IdempotencyKeys

TLS = httpx.create_ssl_context()  # once: to read the certificates takes longer than a call
UNDERWRITERS = ("Ada", "Grace", "Hedy")


class Desk:
    """`process` for threads, `process_async` for tasks: one operation, so that what came both ways is done once."""

    def __init__(self, store: Any, bureau: str, book: Book, *, app: str = "insurer", **choices: Any) -> None:
        self.once = Once(store, app=app, counters=True, **choices)
        self.book = book
        self._remote: dict[str, Any] = {
            "base_url": bureau,
            "auth": IdempotencyKeys(),
            "verify": TLS,
        }
        self._client = httpx.Client(**self._remote)
        self._turns = itertools.cycle(UNDERWRITERS)
        once_per_content = self.once(name="submission", key=SAME_SUBMISSION)
        self.process = once_per_content(self._process)
        self.process_async = once_per_content(self._process_async)
        self.assign = self.once(name="assign", key="{broker}:{reference}")(self._assign)

    def _process(self, submission: Submission) -> Quote:
        quote = triage(submission)
        if quote is None:
            quote = _priced(submission, self._client.post("/scores", json=question(submission)))
        self.book.write(submission, quote)
        return quote

    async def _process_async(self, submission: Submission) -> Quote:
        quote = triage(submission)
        if quote is None:
            async with httpx.AsyncClient(**self._remote) as client:
                quote = _priced(submission, await client.post("/scores", json=question(submission)))
        await self.book.write_async(submission, quote)
        return quote

    def _assign(self, broker: str, reference: str) -> str:
        """Who looks after it: one person for each reference of a broker, whatever it says."""
        return f"{next(self._turns)} looks after {reference} of {broker}"

    def close(self) -> None:
        self._client.close()
        self.once.close()


def question(submission: Submission) -> dict[str, str]:
    """What the bureau is asked."""
    return {"risk": submission.risk, "company": submission.company}


def _priced(submission: Submission, answer: httpx.Response) -> Quote:
    """The bureau's refusal is an exception: nothing is stored, and the next delivery asks again, with the same key."""
    answer.raise_for_status()
    found = answer.json()
    return price(submission, found["score"], found["charge"])
