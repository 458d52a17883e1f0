"""What all pages share: money, the account, the cart's count, the lab's state, and helpful errors."""

from typing import Any

from flask import Flask, Response, abort, current_app, jsonify, render_template, request
from marshmallow import Schema, ValidationError, fields
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from demo_shop.accounts import current_account, unauthorised
from demo_shop.art import draw
from demo_shop.lab import lab_state
from demo_shop.models import CartLine, Product, db
from flask_idempotency.errors import RequestRefused

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self';"
    " frame-ancestors 'none'"
)
WORDS = {
    400: ("That was not understood", "Something was missing or had the wrong form. Go back and try once more."),
    403: ("That is not allowed", "Load the page again, then try once more."),
    404: ("There is no such page", "Perhaps the last one was sold."),
    405: ("This page is only for looking, or only for sending", "Go back, and use the buttons of the page."),
    413: ("That is too large", "Send less at a time."),
    415: ("This form is not understood here", "Send JSON, or what a form sends."),
    500: ("Something broke in the shop", "It is not your fault. Wait a moment, then try once more."),
}


def wants_json() -> bool:
    """Say whether the client is a program."""
    best = request.accept_mimetypes.best_match(["text/html", "application/json"])
    return request.path.startswith("/api/") or best == "application/json"


def problem(status: int, title: str, text: str) -> Any:
    """Say what went wrong, to a person or a program."""
    if wants_json():
        return jsonify(title=title, detail=text, status=status), status
    return render_template("error.html", page="error", title=title, text=text), status


def read(schema: Schema) -> Any:
    """Read what was sent, as JSON or as a form, or say what is wrong with it."""
    try:
        if request.is_json and request.get_json(silent=True) is None:
            raise ValidationError("Send a JSON object.", "body")
        return schema.load(request.get_json(silent=True) or _form(schema))
    except ValidationError as error:
        abort(current_app.make_response((jsonify(title="Not understood", detail=_told(error), status=400), 400)))


def prepare(app: Flask) -> None:
    """Give templates what they need, and errors a page."""
    app.add_template_filter(euro)
    app.jinja_env.globals["art"] = lambda product: draw(product.shape, product.colour, product.accent)
    app.context_processor(_everywhere)
    app.after_request(_harden)
    app.register_error_handler(RequestRefused, _refused)
    app.register_error_handler(HTTPException, _failed)
    app.register_error_handler(OperationalError, _no_database)


def euro(cents: int) -> str:
    """Write an amount."""
    return f"€{cents / 100:,.2f}"


def _form(schema: Schema) -> dict[str, Any]:
    """Give a form's fields; numbers are written as text in it."""
    numbers = [name for name, field in schema.fields.items() if isinstance(field, fields.Integer)]
    return {
        name: int(value) if name in numbers and value.isdecimal() else value for name, value in request.form.items()
    }


def _told(error: ValidationError) -> str:
    messages = error.messages if isinstance(error.messages, dict) else {"body": error.messages}
    return "; ".join(f"{field}: {' '.join(map(str, said))}" for field, said in messages.items())


def _everywhere() -> dict[str, Any]:
    account = current_account()
    count = 0
    if account is not None:
        count = db.session.scalar(select(func.sum(CartLine.quantity)).filter_by(account_id=account.id)) or 0
    return {"account": account, "cart_count": count, "lab": lab_state()}


def _harden(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    if response.mimetype == "text/html":
        response.headers.setdefault("Cache-Control", "no-store")  # pages show what is true now, also after Back
    return response


def _refused(refusal: RequestRefused) -> Any:
    """Render a refusal of the extension: a problem document for programs, a page for people."""
    if wants_json():
        return refusal.get_response()
    return render_template(
        "error.html",
        page="error",
        title=refusal.title,
        text=refusal.description,
        code=refusal.problem,
        retryable=refusal.retryable,
        reference=refusal.reference,
    ), refusal.code


def _failed(error: HTTPException) -> Any:
    if error.code == 401 and request.path.startswith("/api/"):
        return unauthorised()
    if error.response is not None:
        return error.response
    code = error.code or 500
    title, text = WORDS.get(code, (error.name, error.description or ""))
    if code in (404, 405) and wants_json():
        title, text = error.name, "There is nothing at this address, or not for this method."
    if error.description != type(error).description:
        text = error.description or text  # given to abort()
    response = current_app.make_response(problem(code, title, text))
    if isinstance(error, MethodNotAllowed):
        response.allow.update(error.valid_methods or ())
    return response


def _no_database(_: OperationalError) -> Any:
    db.session.rollback()
    if wants_json():
        return jsonify(title="The shop is closed for a moment", detail="Try again soon.", status=503), 503
    return "The shop's database does not answer. Try again in a moment.", 503


def find_product(slug: object) -> Product | None:
    """Look a product up."""
    return db.session.scalar(select(Product).filter_by(slug=slug))
