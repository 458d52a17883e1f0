"""Flask-Compress: a replay is compressed only for a client that asks for it, wherever the package is registered."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import brotli
import pytest
from backports import zstd

from tests.ecosystem.apps.flask_compress import After, Before
from tests.ecosystem.shop import REPLAYED

DECODERS = {"gzip": gzip.decompress, "br": brotli.decompress, "zstd": zstd.decompress}


def read(answer: Any, accepted: str | None) -> Any:
    """Read an answer as a client does that understands one coding, or none."""
    assert answer.headers.getlist("Content-Length") == [str(len(answer.data))]
    codings = answer.headers.getlist("Content-Encoding")
    assert codings in ([], [accepted])
    return json.loads(DECODERS[accepted](answer.data) if codings and accepted else answer.data)


@pytest.mark.parametrize("kind", [Before, After])
@pytest.mark.parametrize("later", [None, "identity", "gzip"])
@pytest.mark.parametrize("first", [None, "gzip", "br", "zstd"])
def test_a_replay_is_compressed_only_for_a_client_that_asks_for_it(
    make_shop: Callable[..., Any], kind: Any, first: str | None, later: str | None
) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea", headers={"Accept-Encoding": asked} if asked else {}) for asked in (first, later)]

    assert answers[0].headers.get("Content-Encoding") == first
    assert read(answers[0], first) == read(answers[1], later)
    assert [REPLAYED in answer.headers for answer in answers] == [False, True]
    assert shop.orders == ["tea"]
