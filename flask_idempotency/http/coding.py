"""Decompresses answers. Knows the codings that apps use, and depends on no package for any of them: whatever an app
compresses with is installed where it runs.
"""

import zlib
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

LARGEST = 64 * 1024 * 1024  # bytes after decompression; a larger answer may be a bomb, and is replayed compressed
_PIECE = 1024  # bytes per step for a decoder that has no limit on its output
_BROTLI = ("brotli", "brotlicffi")
_ZSTD = ("compression.zstd", "backports.zstd", "pyzstd")  # one interface, in Python's library from 3.14 on


def decoded(coding: str, body: bytes) -> bytes | None:
    """Undo a coding; None if it is unknown here, or if the body is damaged, cut short, or a bomb."""
    decode = _DECODERS.get(coding)
    return None if decode is None else decode(body)


def _gzip(body: bytes) -> bytes | None:
    return _members(lambda: zlib.decompressobj(31), zlib.error, body)


def _deflate(body: bytes) -> bytes | None:
    plain = _members(lambda: zlib.decompressobj(15), zlib.error, body)
    # Some servers omit zlib's header.
    return _members(lambda: zlib.decompressobj(-15), zlib.error, body) if plain is None else plain


def _zstd(body: bytes) -> bytes | None:
    library = _first_installed(_ZSTD)
    return None if library is None else _members(library.ZstdDecompressor, library.ZstdError, body)


def _brotli(body: bytes) -> bytes | None:
    library = _first_installed(_BROTLI)
    if library is None:
        return None
    decoder, plain = library.Decompressor(), b""
    try:
        for start in range(0, len(body), _PIECE):
            plain += decoder.process(body[start : start + _PIECE])
            if len(plain) >= LARGEST:
                return None
    except library.error:
        return None
    return plain if decoder.is_finished() else None


def _members(make_decoder: Callable[[], Any], error: type[Exception], body: bytes) -> bytes | None:
    """Decode a body that may consist of several compressed parts, one after the other."""
    plain = b""
    while body:
        member = make_decoder()
        try:
            plain += member.decompress(body, LARGEST - len(plain))
        except error:
            return None
        if not member.eof or len(plain) == LARGEST:
            return None
        body = member.unused_data
    return plain


@lru_cache(maxsize=2)
def _first_installed(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


_DECODERS: dict[str, Callable[[bytes], bytes | None]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
