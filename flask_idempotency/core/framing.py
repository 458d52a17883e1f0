"""Joins byte strings unambiguously. Nothing here knows what they mean."""


def frame(*parts: bytes) -> bytes:
    """Join *parts*, each after its length: two different lists of parts never give the same bytes."""
    # Eight bytes of length, because a part may be a whole request body. The width is part of every stored id.
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def utf8(text: str) -> bytes:
    """Encode any text without failing; different texts stay different."""
    return text.encode("utf-8", "surrogatepass")  # bytes that a server could not decode may arrive as lone surrogates
