"""Create the tables of Onceward."""

from django.db import migrations, models

from onceward.django.tables import OncewardTables


def model(name: str, table: str, *fields: tuple[str, models.Field], **options: object) -> migrations.CreateModel:
    """Return the operation that creates the model, but no table."""
    return migrations.CreateModel(name, list(fields), {"db_table": table, "default_permissions": (), **options})


class Migration(migrations.Migration):
    """The first version of the tables."""

    initial = True
    operations = [  # noqa: RUF012 (Django's interface)
        migrations.SeparateDatabaseAndState(
            database_operations=[OncewardTables(sqlite=1, postgresql=1)],
            state_operations=[
                model(
                    "Record",
                    "onceward_records",
                    ("id", models.BinaryField(primary_key=True, serialize=False)),
                    ("scope", models.TextField()),
                    ("key", models.TextField()),
                    ("state", models.TextField(null=True)),
                    ("updated_at", models.BigIntegerField()),
                    verbose_name="record",
                    default_permissions=("view",),
                    permissions=(
                        ("resolve_record", "Can resolve a parked record"),
                        ("retry_record", "Can let a failed record run again"),
                        ("forget_record", "Can forget a record"),
                    ),
                ),
                model(
                    "AuditEntry",
                    "onceward_audit",
                    ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ),
                model("LatestState", "onceward_latest", ("id", models.BinaryField(primary_key=True, serialize=False))),
                model("DedupMark", "onceward_marks", ("id", models.BinaryField(primary_key=True, serialize=False))),
                model(
                    "HourCount",
                    "onceward_counters",
                    ("process", models.BinaryField(primary_key=True, serialize=False)),
                ),
                model(
                    "HistoryEvent", "onceward_history", ("id", models.BinaryField(primary_key=True, serialize=False))
                ),
            ],
        )
    ]
