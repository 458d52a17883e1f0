"""Our extension under gunicorn, with both guards, keeps every promise in Stripe's dialect too."""

import pytest

from flask_idempotency.conformance.verdicts import Broken, NotShown
from tests.conformance.conftest import judged, of_kind


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_our_extension_keeps_every_promise_in_stripes_dialect(gunicorn, store_url, guard):
    env = {"CONFORMING_DATABASE": store_url, "CONFORMING_GUARD": guard, "CONFORMING_DIALECT": "stripe"}
    server = gunicorn("tests.apps.conforming:app", workers=2, threads=4, env=env, options=["--preload"])

    report = judged(server.url)

    assert report.dialect.name == "stripe"
    assert of_kind(report, Broken) == {}
    assert of_kind(report, NotShown).keys() == {"key-unbalanced"}  # a quote is a part of the key
