"""Who is asking: a browser that is signed in, or a client with an account's API token. Keys belong to an account."""

import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    g,
    jsonify,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from itsdangerous import BadSignature, URLSafeSerializer
from sqlalchemy import select
from werkzeug.wrappers import Response as AnyResponse

from demo_shop.models import Account, db

blueprint = Blueprint("accounts", __name__)
View = TypeVar("View", bound=Callable[..., Any])


def current_account() -> Account | None:
    """Give the account of the current request, or None."""
    if "account" not in g:
        g.account = _by_token() if _is_a_programs() else _by_session()
    return g.account  # type: ignore[no-any-return]  # g takes anything


def _is_a_programs() -> bool:
    """Say whether the request must have a token; a receipt is for whoever sent its request, a browser or a program."""
    is_receipt = request.path.startswith("/receipts/")
    return request.path.startswith("/api/") or (is_receipt and "Authorization" in request.headers)


def my_account() -> Account:
    """Give the account, in a view that requires one."""
    return current_account() or abort(401)


def scope() -> int | None:
    """Name the caller: a key belongs to an account. A program without a token gets 401, with a key or without one."""
    account = my_account() if request.path.startswith("/api/") else current_account()
    return None if account is None else account.id


def act_as(account: str) -> None:
    """Restore the caller of a request that is resumed without its client."""
    g.account = db.session.get(Account, int(account))


def signed_in(view: View) -> View:
    """Send visitors who are not signed in to the sign-in page, and back afterwards.

    What they sent is not kept: the page asks them to send it again. Put this above @idempotent, so that replays are
    authorised too.
    """

    @wraps(view)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if current_account() is None:
            if request.method == "GET":
                return redirect(url_for("accounts.sign_in", next=request.full_path.rstrip("?")))
            return redirect(url_for("accounts.sign_in", next=_page_before(), again=1))
        return view(*args, **kwargs)

    return checked  # type: ignore[return-value]  # it takes and gives the same


def token_of(account: Account) -> str:
    """Give an API token of an account: a new one each time; older ones stay valid."""
    return str(_tokens().dumps([account.handle, secrets.token_hex(4)]))


@blueprint.get("/sign-in")
def sign_in() -> str:
    """Show the three accounts."""
    accounts = db.session.scalars(select(Account).order_by(Account.id)).all()
    notice = "Sign in first, then do it again: nothing was done yet." if "again" in request.args else ""
    wanted = request.args.get("next", "")
    return render_template("sign_in.html", page="sign-in", accounts=accounts, next=wanted, notice=notice)


@blueprint.post("/sign-in")
def enter() -> AnyResponse:
    """Sign in with one click: this is a demonstration, and there is no password."""
    account = db.session.scalar(select(Account).filter_by(handle=request.form.get("handle", "")))
    if account is None:
        abort(400)
    session.clear()
    session["account_id"] = account.id
    return redirect(_local(request.form.get("next")) or url_for("storefront.catalogue"), 303)


@blueprint.post("/sign-out")
def leave() -> AnyResponse:
    """Sign out."""
    session.clear()
    return redirect(url_for("storefront.catalogue"), 303)


def unauthorised() -> Response:
    """Answer that a token is needed."""
    text = "Send Authorization: Bearer and the token of an account."
    response = jsonify(title="Unauthorized", detail=text, status=401)
    response.status_code, response.headers["WWW-Authenticate"] = 401, 'Bearer realm="shop"'
    return response


def _by_session() -> Account | None:
    number = session.get("account_id")
    return None if number is None else db.session.get(Account, number)


def _by_token() -> Account | None:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    try:
        handle, _ = _tokens().loads(token) if kind.lower() == "bearer" else (None, None)
    except BadSignature:
        return None
    return None if handle is None else db.session.scalar(select(Account).filter_by(handle=handle))


def _tokens() -> URLSafeSerializer:
    return URLSafeSerializer(current_app.secret_key or "", salt="api token")


def _page_before() -> str | None:
    """Give the path of the page with the form, if it is one of this shop."""
    parts = urlsplit(request.referrer or "")
    return _local(parts._replace(scheme="", netloc="").geturl()) if parts.netloc == request.host else None


def _local(target: str | None) -> str | None:
    """Give a path of this shop, and never one that leads elsewhere."""
    parts = urlsplit(target or "")
    safe = parts.path.startswith("/") and not parts.path.startswith(("//", "/\\")) and not parts.netloc
    return target if safe and not parts.scheme else None
