"""A package, so that `tests.fixtures` and `tests.apps` have one name in pytest, in gunicorn and in child processes."""
