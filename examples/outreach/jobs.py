"""The client for `onceward schedule examples.outreach.jobs:once`. Run it on as many machines as you like."""

from __future__ import annotations

from .settings import from_environment

outreach = from_environment()
once = outreach.once
