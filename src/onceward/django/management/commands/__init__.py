"""`manage.py onceward`."""
