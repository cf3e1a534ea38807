"""Models of Onceward's tables: for permissions, for the admin, and so that `TransactionTestCase` empties the tables.

The tables are created by the statements of the stores (`migrations/`), not from these models: they have columns and
indexes that a model cannot describe. `onceward_meta` has no model: emptying it would lose the version of the tables.
Do not write through these models.
"""

from __future__ import annotations

from django.db import models


class Record(models.Model):
    """What is stored under a key. A NULL stands for the usual value: no state means COMPLETED."""

    id = models.BinaryField(primary_key=True)
    scope = models.TextField()
    key = models.TextField()
    state = models.TextField(null=True)
    updated_at = models.BigIntegerField()

    class Meta:
        db_table = "onceward_records"
        verbose_name = "record"
        default_permissions = ("view",)
        permissions = (
            ("resolve_record", "Can resolve a parked record"),
            ("retry_record", "Can let a failed record run again"),
            ("forget_record", "Can forget a record"),
        )


class AuditEntry(models.Model):
    """A change that a person made."""

    number = models.BigIntegerField(primary_key=True)

    class Meta:
        db_table = "onceward_audit"
        default_permissions = ()


class LatestState(models.Model):
    """The latest state of an entity."""

    id = models.BinaryField(primary_key=True)

    class Meta:
        db_table = "onceward_latest"
        default_permissions = ()


class DedupMark(models.Model):
    """A known message or event."""

    id = models.BinaryField(primary_key=True)

    class Meta:
        db_table = "onceward_marks"
        default_permissions = ()


class HourCount(models.Model):
    """How often each event happened in a process, by hour."""

    process = models.BinaryField(primary_key=True)

    class Meta:
        db_table = "onceward_counters"
        default_permissions = ()


class HistoryEvent(models.Model):
    """What happened to a key before its current attempt."""

    id = models.BinaryField(primary_key=True)

    class Meta:
        db_table = "onceward_history"
        default_permissions = ()
