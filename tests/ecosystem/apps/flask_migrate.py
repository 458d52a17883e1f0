"""Flask-Migrate: the tables come from a migration, ours among them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import flask_migrate

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Migrate"
STEP = "Unchanged; the next `flask db migrate` creates our tables, and later ones leave them alone."


class Migrated(Shop):
    """The first migration makes every table."""

    def build(self) -> None:
        self.folder = TemporaryDirectory()
        self.migrations = Path(self.folder.name, "migrations")
        flask_migrate.Migrate(self.app, self.db, directory=str(self.migrations))
        self.protect()
        self.app.post("/orders")(self.view)

    def create_tables(self) -> None:
        with self.alembic():
            flask_migrate.init()
        self.migrate()

    def migrate(self) -> str:
        """Write a migration and apply it. Gives its text, or nothing if there was nothing to change."""
        before = set(self.migrations.glob("versions/*.py"))
        with self.alembic():
            flask_migrate.migrate()
            flask_migrate.upgrade()
        return "".join(path.read_text() for path in set(self.migrations.glob("versions/*.py")) - before)

    @contextmanager
    def alembic(self) -> Iterator[None]:
        """Run commands quietly; their env.py switches every logger off that it does not know."""
        with self.app.app_context(), redirect_stdout(StringIO()):
            yield
        for logger in logging.root.manager.loggerDict.values():
            if isinstance(logger, logging.Logger):
                logger.disabled = False

    def close(self) -> None:
        super().close()
        self.folder.cleanup()
