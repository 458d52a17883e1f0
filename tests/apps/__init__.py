"""Apps that tests run under a real server, as `tests.apps.NAME:app`. Tests set them up through the environment."""
