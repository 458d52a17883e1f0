"""``flask idempotency …``: create the tables, look records up, settle them, and see which views are protected.

Each module adds its commands to the group.
"""

from flask_idempotency.cli import checking, completing, housekeeping, looking, reporting, routes, settling
from flask_idempotency.cli.group import commands

__all__ = ["checking", "commands", "completing", "housekeeping", "looking", "reporting", "routes", "settling"]
