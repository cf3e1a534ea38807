"""The settings of a deployment, from environment variables."""

from __future__ import annotations

import os
from typing import Final

from .app import Outreach, Remotes

VARIABLES: Final = """
OUTREACH_DATABASE           sqlite:///outreach.db, or postgresql://…
OUTREACH_SMTP               smtps://user:password@host:465, or smtp://user:password@host:587 (STARTTLS)
OUTREACH_MAIL_RECORDS       base URL that tells which mails were sent: GET /sent/MESSAGE-ID
OUTREACH_DIRECTORY          base URL of the directory: GET /directory/TYPE/PROSPECT
OUTREACH_BANK               base URL of the bank: POST /charges
OUTREACH_PAGER              base URL of the pager: POST /alerts
OUTREACH_API                base URL of those of the four that are not set
OUTREACH_REPLIES_TOKEN      token of the mail provider, for POST /replies
OUTREACH_ENRICHMENT_SECRET  secret of the provider of enrichments (whsec_…), for POST /webhooks/enrichment
"""


def from_environment(database: str | None = None, *, lease: float | None = None) -> Outreach:
    """Return a worker with the settings of the environment."""
    env = os.environ.get
    api = env("OUTREACH_API", "http://localhost:8080")
    remotes = Remotes(
        mail_records=env("OUTREACH_MAIL_RECORDS", api),
        directory=env("OUTREACH_DIRECTORY", api),
        bank=env("OUTREACH_BANK", api),
        pager=env("OUTREACH_PAGER", api),
    )
    url = database or env("OUTREACH_DATABASE", "sqlite:///outreach.db")
    return Outreach(url, smtp=env("OUTREACH_SMTP", "localhost:25"), api=remotes, lease=lease)
