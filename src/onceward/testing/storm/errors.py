"""The error that ends a storm early."""

from __future__ import annotations


class Trouble(Exception):
    """The run cannot be finished, so it proves nothing about the promises."""
