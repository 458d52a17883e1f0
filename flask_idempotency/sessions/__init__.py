"""An app's SQLAlchemy sessions on a transaction of ours: they work as usual, but only we can end it."""
