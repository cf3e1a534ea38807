"""Create the tables of the orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first version of the tables."""

    initial = True

    operations = [
        migrations.CreateModel(
            name="DayReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("cents", models.PositiveIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reference", models.CharField(max_length=50, unique=True)),
                ("cents", models.PositiveIntegerField()),
                ("mailed", models.BooleanField(default=False)),
            ],
        ),
    ]
