"""Flask-SQLAlchemy alone: what every other app is compared with."""

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-SQLAlchemy"
STEP = "Pass `db=db` to `init_app`."


class Plain(Shop):
    databases = ("sqlite", "postgresql")
