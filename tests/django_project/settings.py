"""Settings of the test project: SQLite, or PostgreSQL if SHOP_DATABASE is a URL."""

import os
from urllib.parse import urlsplit

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "tests.django_project.urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "onceward.django",
    "tests.django_project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "onceward.django.IdempotencyMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
EMAIL_BACKEND = os.environ.get("SHOP_EMAIL", "django.core.mail.backends.smtp.EmailBackend")


def database(url: str) -> dict[str, object]:
    place = urlsplit(url)
    if place.scheme == "postgresql":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": place.path.lstrip("/"),
            "USER": place.username or "postgres",
            "PASSWORD": place.password or "",
            "HOST": place.hostname,
            "PORT": place.port,
        }
    options = {"transaction_mode": "IMMEDIATE", "timeout": 60}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": url, "OPTIONS": options}


DATABASES = {"default": database(os.environ.get("SHOP_DATABASE", "shop.sqlite3"))}
ONCEWARD = {
    "DATABASE": "default",
    "APP": "shop",
    "MODE": os.environ.get("SHOP_MODE", "enforce"),
    "LEASE": os.environ.get("SHOP_LEASE", "10s"),
    "OPERATIONS": {"close": {"key": "close:{day}"}},
    "HTTP": {"required": ["/ninja/orders"], "bare_keys": True},
}
if "SHOP_LOG_LEVEL" in os.environ:
    LOGGING = {
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "loggers": {"onceward": {"handlers": ["console"], "level": os.environ["SHOP_LOG_LEVEL"]}},
    }
