"""A shop with Django.

Run `python -m examples.django_shop.manage` with one of these arguments:

- `migrate`, then `runserver` or `onceward ls`
- `test examples.django_shop.orders.tests`

The files:

- `orders/services.py`: the work, once per order
- `orders/views.py`, `orders/api.py`: a view, and an endpoint of Django REST framework
- `orders/tasks.py`: a Celery task
- `orders/jobs.py`: a schedule for `manage.py onceward schedule`
- `orders/management/commands/close_day.py`: a command for cron on several machines
- `orders/tests.py`: the tests
"""
