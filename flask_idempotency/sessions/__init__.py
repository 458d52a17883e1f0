"""An app's SQLAlchemy sessions on a transaction of ours: they work as usual, but they cannot end it."""
