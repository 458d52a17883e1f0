"""What the settings of a PostgreSQL server cost or risk."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from flask_idempotency.errors import ConfigError

LONG_IDLE = timedelta(seconds=30)  # a view that waits for a foreign system for longer is slow by any measure


def advice(row: Sequence[Any]) -> Iterator[str]:
    """Judge what advise.sql has read. Raises ConfigError if our role may not do what it must."""
    lacking, check_interval, commit, fsync, sync_standbys, standbys, idle = row
    if lacking:
        raise ConfigError(f"The role lacks {', '.join(lacking)}: grant it.")
    if check_interval == "0":  # older servers do not have it
        yield (
            "client_connection_check_interval is 0, so that the server notices only at the end of a query that its"
            " client has died, and keeps its locks until then, for which retries wait: set it to 500ms."
        )
    if fsync == "off":
        yield "fsync is off: a crash of the server loses or damages records, and requests run again: set it to on."
    if commit == "off":
        yield (
            "synchronous_commit is off: claims and answers are flushed to the disk all the same, but a crash of the"
            " server loses what the app has committed without a key."
        )
    elif commit == "local" and sync_standbys:
        yield (
            "synchronous_commit is local: a failover loses what the standby has not received, and its requests run"
            " again: set it to on."
        )
    if standbys and not sync_standbys:
        yield (
            "the standby is asynchronous: a failover loses what it has not received, and those requests run again: name"
            " it in synchronous_standby_names if that costs more than waiting for it."
        )
    if 0 < idle < LONG_IDLE / timedelta(milliseconds=1):
        yield (
            f"idle_in_transaction_session_timeout is {idle / 1000:g} s: a view under the transaction guard that is busy"
            " elsewhere for longer is rolled back, and its client gets 503: raise it above your slowest view."
        )
