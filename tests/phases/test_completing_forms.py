"""A form that somebody has read before it was claimed is stored whole, and comes again as the same request."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest
from flask import Request, g, request
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import FileStorage, Headers, ImmutableMultiDict
from werkzeug.formparser import FormDataParser
from werkzeug.test import EnvironBuilder

from demo_shop.checkout.views import what_was_asked
from flask_idempotency import idempotent, phase
from flask_idempotency.http.resuming import RESUMED, form_again
from tests.phases.conftest import Tables, id_of
from tests.phases.test_completer import Office

URLENCODED, BOUNDARY = "application/x-www-form-urlencoded", "a-boundary"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
PARTS = {"note": b'Content-Disposition: form-data; name="note"\r\n\r\nfor "Ada" \xc3\xbc\r\n'}
PARTS["order"] = b'Content-Disposition: form-data; name="order"\r\n\r\nT-1\r\n'
PARTS["card"] = b'Content-Disposition: form-data; name="card"\r\nContent-Type: text/plain\r\n\r\n4242\r\n'
PARTS["second note"] = b'Content-Disposition: form-data; name="note"\r\n\r\nanother\r\n'
PARTS["picture"] = (
    b'Content-Disposition: form-data; name="picture"; filename="a %22cat%22; one.png"\r\n'
    b"Content-Type: image/png; q=1\r\nX-Own: kept\r\n\r\n\x89PNG\r\n\x00--\r\n"
)
PARTS["second picture"] = PARTS["picture"].replace(b"cat", b"dog").replace(b"\x00", b"\x01")
PARTS["nothing chosen"] = b'Content-Disposition: form-data; name="more"; filename=""\r\n\r\n\r\n'
PARTS["odd name"] = (
    b"Content-Disposition: form-data; name*=UTF-8''a%0D%0Ab%22; filename*=UTF-8''%C3%BC%0A.txt\r\n\r\nx\r\n"
)


def multipart(*names: str) -> dict[str, Any]:
    """A multipart form of these parts."""
    lines = b"".join(f"--{BOUNDARY}\r\n".encode() + PARTS[name] for name in names)
    return {"data": lines + f"--{BOUNDARY}--\r\n".encode(), "content_type": MULTIPART}


FORMS: dict[str, dict[str, Any]] = {
    "urlencoded": {"data": b"order=T-1&card=42%2042&note=%C3%BC%26+%25&empty=&card=second", "content_type": URLENCODED},
    "with a charset": {"data": b"order=T-1&card=4242", "content_type": f"{URLENCODED}; charset=iso-8859-1"},
    "with a coding": {"data": b"order=T-1&card=4242", "content_type": URLENCODED, "coding": "identity"},
    "fields": multipart("order", "card", "note"),
    "files": multipart("order", "card", "picture", "nothing chosen", "odd name"),
    "mixed": multipart("picture", "note", "second picture", "order", "second note"),
    "only a file": multipart("picture"),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


class Desk(Office):
    """An office with a view for forms, and perhaps a hook that reads them before anybody else."""

    def open(self, hook: Callable[[], object] | None = None, **options: Any) -> None:
        self.found: list[Any] = []
        if hook is not None:
            self.app.before_request_funcs.setdefault(None, []).insert(0, lambda: (hook(), None)[1])
        protect = idempotent(required=True, guard="lease", resumable=True, **options)
        self.app.post("/form")(protect(self.take_form))

    def take_form(self) -> Any:
        files = [
            (name, file.filename, file.content_type, file.headers.get("X-Own"), file.read())
            for name, file in request.files.items(multi=True)
        ]
        self.found.append((request.form.to_dict(flat=False), files))
        phase("order_placed", self.place_order)
        self.charge("key")
        return {"for": g.user}, 201

    def send_form(self, form: dict[str, Any], **options: Any) -> Any:
        form = dict(form)
        environ = {"HTTP_CONTENT_ENCODING": form.pop("coding")} if "coding" in form else {}
        environ |= options.pop("environ", {})
        return self.send(path="/form", json=None, environ_overrides=environ, **form, **options)

    def is_recorded(self) -> bool:
        return self.tables.store.find(id_of("k", "ada")) is not None


def read_the_form() -> None:
    request.form.get("csrf_token")


def read_the_form_of_clients() -> None:
    """As the guide tells a hook to do: let a request pass that is resumed."""
    if RESUMED not in request.environ:
        request.form.get("csrf_token")


def read_the_form_when_resumed() -> None:
    """As a hook that came with a later release."""
    if RESUMED in request.environ:
        request.form.get("csrf_token")


hooks = pytest.mark.parametrize(
    "hook",
    [None, read_the_form, read_the_form_of_clients, read_the_form_when_resumed],
    ids=["no hook", "a hook", "a hook for clients", "a hook that came later"],
)


@pytest.fixture
def desk(tables: Tables) -> Iterator[Desk]:
    desk = Desk(tables)
    yield desk
    desk.close()


def assert_it_is_finished(desk: Desk, form: dict[str, Any]) -> None:
    """Leave a form in the middle, and see the completer end it as the same request."""
    assert desk.send_form(form).status_code == 500
    desk.is_down = False

    outcomes = desk.complete()

    assert outcomes == [(201, "finished")]
    assert len(desk.found) == 2
    assert desk.found[0] == desk.found[1]
    assert any(desk.found[0])
    assert desk.send_form(form).headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("hook", [read_the_form, read_the_form_of_clients], ids=["a hook", "a hook for clients"])
@forms
def test_a_form_that_a_hook_has_read_is_finished_as_it_was_sent(desk, hook, form):
    desk.open(hook)

    assert_it_is_finished(desk, form)


@hooks
@pytest.mark.parametrize("form", [FORMS[name] for name in ("urlencoded", "files", "mixed")])
def test_a_form_that_is_compared_by_the_view_s_own_rules_is_finished_as_it_was_sent(desk, hook, form):
    desk.open(hook, fingerprint=what_was_asked)

    assert_it_is_finished(desk, form)


@pytest.mark.parametrize("hook", [None, read_the_form_of_clients], ids=["no hook", "a hook for clients"])
@pytest.mark.parametrize("body", [b"order=%ff&card=%25FF", b"order=T-1&card=4242&_idempotency_key=k"])
def test_what_only_the_view_s_own_rules_can_compare_is_finished_too(desk, hook, body):
    desk.open(hook, fingerprint=what_was_asked)

    assert_it_is_finished(desk, {"data": body, "content_type": URLENCODED})


def test_the_view_finds_a_file_where_the_hook_left_off(desk):
    desk.open(lambda: request.files["picture"].read(4))

    assert_it_is_finished(desk, FORMS["only a file"])

    ((*_, content),) = desk.found[0][1]
    assert content == b"\r\n\x00--"


@pytest.mark.parametrize("options", [{}, {"fingerprint": what_was_asked}], ids=["our rules", "own rules"])
def test_a_form_with_a_file_that_a_hook_closed_is_refused_and_nothing_is_stored(desk, options):
    desk.open(lambda: request.files["picture"].close(), **options)

    answer = desk.send_form(FORMS["only a file"])

    assert (answer.status_code, desk.found, desk.is_recorded()) == (400, [], False)
    assert "did not arrive whole, or a hook had consumed it" in answer.text


@pytest.mark.parametrize(
    "form",
    [
        {"data": b"note=" + b"x" * 300, "content_type": URLENCODED},
        multipart("order", "picture", "second picture"),
    ],
    ids=["urlencoded", "files"],
)
@pytest.mark.parametrize("options", [{}, {"fingerprint": what_was_asked}], ids=["our rules", "own rules"])
def test_a_form_of_unknown_length_that_a_hook_has_read_is_bounded_like_any_body(
    store_url: str, form: dict[str, Any], options: dict[str, Any]
) -> None:
    tables = Tables(store_url)
    desk = Desk(tables, settings={"IDEMPOTENCY_MAX_BODY": 300})
    desk.open(read_the_form, **options)
    endless = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}

    answer = desk.send_form(form, environ=endless)

    assert (answer.status_code, answer.json["code"]) == (413, "body-too-large")
    assert (desk.found, desk.is_recorded()) == ([], False)
    desk.close()
    tables.close()


class OwnParser(FormDataParser):
    """Takes every body for a form of one field."""

    def parse(self, stream: Any, *_: Any, **__: Any) -> Any:
        return stream, ImmutableMultiDict({"all": stream.read().decode()}), ImmutableMultiDict()


def test_a_type_that_only_the_app_can_parse_is_refused_rather_than_stored_without_its_body(desk):
    desk.app.request_class = type("OwnRequest", (Request,), {"form_data_parser_class": OwnParser})
    desk.open(read_the_form)

    answer = desk.send_form({"data": b"raw", "content_type": "text/own"})

    assert (answer.status_code, desk.found, desk.is_recorded()) == (400, [], False)
    assert "a body of this type cannot be restored" in answer.text


@pytest.mark.parametrize("hook", [None, lambda: request.get_data()], ids=["no hook", "a hook"])
def test_a_resumable_view_can_read_the_stream_by_itself(desk, hook):
    read: list[bytes] = []
    desk.take_form = lambda: (read.append(request.stream.read()), "ok")[1]
    desk.open(hook)

    desk.send_form({"data": b"raw", "content_type": "image/x"})

    assert read == [b"raw"]


# -- any form ----------------------------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
fields = st.lists(st.tuples(names, names))
files = st.lists(
    st.tuples(names, names, st.sampled_from([None, "image/png", 'text/plain; charset="utf-8"']), st.binary())
)


def as_parsed(given: Request) -> tuple[Any, Any]:
    return list(given.form.items(multi=True)), [
        (name, file.filename, file.content_type, file.stream.read()) for name, file in given.files.items(multi=True)
    ]


def written_again(type_: str, parsed: Any, uploads: Any = ()) -> tuple[Any, Any]:
    """Write a parsed form, and give what is parsed from that."""
    given = Request({"CONTENT_TYPE": type_, "REQUEST_METHOD": "POST"})
    stored = [
        (name, FileStorage(BytesIO(content), filename, headers=Headers([("Content-Type", kind)] if kind else [])))
        for name, filename, kind, content in uploads
    ]
    vars(given).update(form=ImmutableMultiDict(parsed), files=ImmutableMultiDict(stored))
    body = form_again(given, 10**6)
    with Request(EnvironBuilder(method="POST", data=body, content_type=type_).get_environ()) as again:
        return as_parsed(again)


def in_order(pairs: list[Any]) -> list[Any]:
    """Put what has the same name together, as a parsed form does."""
    first = {each[0]: place for place, each in reversed(list(enumerate(pairs)))}
    return sorted(pairs, key=lambda each: first[each[0]])


@given(fields)
def test_any_urlencoded_form_is_parsed_to_the_same_again(parsed):
    assert written_again(URLENCODED, parsed) == (in_order(parsed), [])


@given(fields, files)
def test_any_multipart_form_is_parsed_to_the_same_again(parsed, uploads):
    assert written_again(MULTIPART, parsed, uploads) == (in_order(parsed), in_order(uploads))
