"""The underwriting desk: triage, a paid credit check, a price. Once per submission, in threads and in tasks."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from examples.submissions.quote_table import QuoteTable
from examples.submissions.rules import SAME_SUBMISSION, Quote, Submission, price, triage
from onceward import Once
from onceward.http.client_keys import IdempotencyKeys

TLS = httpx.create_ssl_context()  # created once: loading the certificates takes longer than a request
UNDERWRITERS = ("Ada", "Grace", "Hedy")


class Desk:
    """`process` for threads, `process_async` for tasks: one operation, so duplicates of either kind are one."""

    def __init__(self, store: Any, bureau: str, quotes: QuoteTable, *, app: str = "insurer", **choices: Any) -> None:
        self.once = Once(store, app=app, counters=True, **choices)
        self.quotes = quotes
        self._remote: dict[str, Any] = {
            "base_url": bureau,
            "auth": IdempotencyKeys(),
            "verify": TLS,
        }
        self._client = httpx.Client(**self._remote)
        self._underwriters = itertools.cycle(UNDERWRITERS)
        once_per_content = self.once(name="submission", key=SAME_SUBMISSION)
        self.process = once_per_content(self._process)
        self.process_async = once_per_content(self._process_async)
        self.assign = self.once(name="assign", key="{broker}:{reference}")(self._assign)

    def _process(self, submission: Submission) -> Quote:
        quote = triage(submission)
        if quote is None:
            quote = _priced(submission, self._client.post("/scores", json=score_request(submission)))
        self.quotes.write(submission, quote)
        return quote

    async def _process_async(self, submission: Submission) -> Quote:
        quote = triage(submission)
        if quote is None:
            async with httpx.AsyncClient(**self._remote) as client:
                quote = _priced(submission, await client.post("/scores", json=score_request(submission)))
        await self.quotes.write_async(submission, quote)
        return quote

    def _assign(self, broker: str, reference: str) -> str:
        """Assign an underwriter: one for each reference of a broker, whatever the content."""
        return f"{next(self._underwriters)} looks after {reference} of {broker}"

    def close(self) -> None:
        self._client.close()
        self.once.close()


def score_request(submission: Submission) -> dict[str, str]:
    """Return the body of the request to the bureau."""
    return {"risk": submission.risk, "company": submission.company}


def _priced(submission: Submission, answer: httpx.Response) -> Quote:
    """Return the quote. An error response raises: nothing is stored, and the next delivery sends the same key again."""
    answer.raise_for_status()
    body = answer.json()
    return price(submission, body["score"], body["charge"])
