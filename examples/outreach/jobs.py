"""The client for `onceward schedule examples.outreach.jobs:once`. Run it on as many machines as you like."""

from __future__ import annotations

import os

from .app import Outreach

outreach = Outreach(
    os.environ.get("OUTREACH_DATABASE", "sqlite:///outreach.db"),
    smtp=os.environ.get("OUTREACH_SMTP", "localhost:25"),
    api=os.environ.get("OUTREACH_API", "http://localhost:8080"),
)
once = outreach.once
