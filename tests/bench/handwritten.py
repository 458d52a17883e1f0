"""The pattern as it is usually written by hand: claim and commit, work and commit, complete and commit.

It is here to be compared with. A worker that dies between two of the commits leaves the key locked, or work done twice.
"""

from hashlib import sha256

from flask import Flask, Response, request
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from tests.bench.apps import make_shop


def make_handwritten_app(url: str) -> Flask:
    """The shop with the pattern in its view."""
    app, db, order_class = make_shop(url)

    class IdempotencyKey(db.Model):  # type: ignore[name-defined]  # Flask-SQLAlchemy's base is made at run time
        key: Mapped[str] = mapped_column(primary_key=True)
        digest: Mapped[bytes]
        status: Mapped[int | None]
        body: Mapped[bytes | None]

    def claim(key: str, digest: bytes) -> Response | None:
        found = db.session.execute(select(IdempotencyKey).where(IdempotencyKey.key == key)).scalar()
        if found is None:
            try:
                db.session.execute(insert(IdempotencyKey).values(key=key, digest=digest))
                db.session.commit()
            except IntegrityError:
                db.session.rollback()
                return Response("in flight", 409)
            return None
        if found.digest != digest:
            return Response("another request", 422)
        if found.status is None:
            return Response("in flight", 409)
        return Response(found.body, found.status, mimetype="application/json")

    def complete(key: str, response: Response) -> None:
        values = {"status": response.status_code, "body": response.get_data()}
        db.session.execute(update(IdempotencyKey).where(IdempotencyKey.key == key).values(**values))
        db.session.commit()

    @app.post("/orders")
    def create_order() -> Response:
        key = request.headers["Idempotency-Key"]
        if (answer := claim(key, sha256(request.get_data()).digest())) is not None:
            return answer
        order = order_class(**request.get_json())
        db.session.add(order)
        db.session.commit()
        response = app.make_response(({"id": order.id}, 201))
        complete(key, response)
        return response

    with app.app_context():
        db.create_all()
    return app
