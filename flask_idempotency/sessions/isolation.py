"""The isolation levels that an app has chosen for its connections, as far as a shared transaction must know them."""

from typing import Any, cast

from sqlalchemy import Connection, Engine


def is_autocommit(level: object) -> bool:
    """Say whether every statement is committed at once at this isolation level."""
    return isinstance(level, str) and level.upper() == "AUTOCOMMIT"


def is_in_autocommit(connection: Connection) -> bool:
    """Say whether the app has chosen, for a connection or its engine, that every statement is committed at once."""
    # create_engine(isolation_level=...) is kept nowhere else. If it is renamed, some drivers still know.
    usual = getattr(connection.dialect, "_on_connect_isolation_level", None)
    return is_autocommit(connection.get_execution_options().get("isolation_level", usual))


def chooses_own_level(engine: Engine) -> bool:
    """Say whether an engine has an option that changes how its transactions work, such as isolation_level."""
    known = cast(Any, engine.dialect).connection_characteristics
    options = engine.get_execution_options()
    return any(options.get(name) for name, each in known.items() if each.transactional)


def options_of(engine: Engine) -> dict[str, Any]:
    """Give an engine's options, without what SQLAlchemy adds to a schema map for itself."""
    maps = {name: dict(value) for name, value in engine.get_execution_options().items() if isinstance(value, dict)}
    for each in maps.values():
        each.pop("_none", None)
    return {**engine.get_execution_options(), **maps}
