"""Schedules: `manage.py onceward schedule` runs each slot once, on any number of machines."""

from onceward.django import once

from .tasks import mail_missing_receipts


@once.schedule("*/5 * * * *", name="mail_missing")
def mail_missing() -> None:
    """Send receipts whose message was lost."""
    mail_missing_receipts()
