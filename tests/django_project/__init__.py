"""A Django project in which the tests use Onceward. Its database comes from the environment."""
