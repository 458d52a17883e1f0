"""Every guard is tested on the same app, from outside."""

from tests.apps.guarded_outside import counter, gate, key, ledger, pause, records, serve

__all__ = ["counter", "gate", "key", "ledger", "pause", "records", "serve"]
