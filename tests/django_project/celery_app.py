"""The Celery application of the test project: `celery -A tests.django_project.celery_app worker`."""

import os

from celery import Celery

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "memory://"))
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {"visibility_timeout": 1}  # seconds: tasks of a killed worker come back soon
app.autodiscover_tasks(["tests.django_project.shop"])
