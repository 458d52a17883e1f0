"""The group that all commands are in, and what happens if one fails."""

import click
from flask.cli import AppGroup

from flask_idempotency.errors import ConfigError, StoreUnavailable


class _Commands(AppGroup):
    """A group whose commands report known errors with one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
        except StoreUnavailable as error:
            raise click.ClickException(
                "The store cannot be reached: check its URL, and that its server is running."
            ) from error


commands = _Commands("idempotency", help="Manage the records of idempotent requests.")
