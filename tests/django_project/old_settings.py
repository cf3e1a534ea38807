"""The settings of the project before it adopts Onceward: no app, no middleware, no decorator."""

from .settings import *  # noqa: F403 (all others stay)
from .settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [name for name in INSTALLED_APPS if name != "onceward.django"]
MIDDLEWARE = [name for name in MIDDLEWARE if name != "onceward.django.IdempotencyMiddleware"]
ROOT_URLCONF = "tests.django_project.old_urls"
del ONCEWARD  # noqa: F821 (from the other module)
