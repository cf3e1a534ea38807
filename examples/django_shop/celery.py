"""The Celery application: `celery -A examples.django_shop.celery worker`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.autodiscover_tasks()
