"""Parses a key from the text of a header or a form field: the whole syntax is here.

RFC 9651 (Structured Fields) defines a quoted key with parameters; the contract adds length and alphabet.
"""

import re
from typing import Literal, NewType

from flask_idempotency.errors import KeyInvalid

Key = NewType("Key", str)
KeySyntax = Literal["auto", "strict", "opaque"]

FORM_FIELD = "_idempotency_key"
MAX_LENGTH = 255  # the highest limit that payment APIs publish, so that a key made for one of them fits

# A key: visible ASCII without comma, double quote and backslash; quoted, also spaces, but not only spaces.
_BARE = rf"([!#-+\--\[\]-~]{{1,{MAX_LENGTH}}})"
_QUOTED = rf'"(?!\ *")([\ !#-+\--\[\]-~]{{1,{MAX_LENGTH}}})"'
_OPAQUE = rf"([ -+\--~]{{1,{MAX_LENGTH}}})"

# Parameters are ignored, but what follows a quoted key must be parameters and nothing else; no comma here either.
_STRING = r'"(?:[\ !#-+\--\[\]-~]|\\["\\])*"'
_DISPLAY_STRING = r"""%"(?:
      [\ !\#$&-+\--~]                            # itself
    | %[0-7][0-9a-f]                             # or percent-encoded UTF-8, of one byte,
    | %(?:c[2-9a-f]|d[0-9a-f])%[89ab][0-9a-f]    # two,
    | (?:%e0%[ab][0-9a-f]|%e[1-9abcef]%[89ab][0-9a-f]|%ed%[89][0-9a-f])%[89ab][0-9a-f]                  # three
    | (?:%f0%[9ab][0-9a-f]|%f[1-3]%[89ab][0-9a-f]|%f4%8[0-9a-f])%[89ab][0-9a-f]%[89ab][0-9a-f]          # or four
)*" """
_BARE_ITEM = rf"""(?:
      -?[0-9]{{1,12}}\.[0-9]{{1,3}}                                               # decimal
    | @?-?[0-9]{{1,15}}                                                           # integer, date
    | {_STRING}
    | [A-Za-z*][!\#$%&'*+\-.^_`|~0-9A-Za-z:/]*                                    # token
    | :(?:(?:[A-Za-z0-9+/]{{4}})*[A-Za-z0-9+/]{{2,4}}={{0,2}})?:                  # byte sequence, padded or not
    | \?[01]                                                                      # boolean
    | {_DISPLAY_STRING}
)"""
_PARAMETERS = rf"(?:;\ *[a-z*][a-z0-9_\-.*]*(?:={_BARE_ITEM})?)*"

# The group that matched is the key. A bare key, the common case, is the first thing tried.
_SYNTAXES: dict[KeySyntax, re.Pattern[str]] = {
    "auto": re.compile(rf"{_BARE}|{_QUOTED}{_PARAMETERS}", re.VERBOSE),
    "strict": re.compile(rf"{_QUOTED}{_PARAMETERS}", re.VERBOSE),
    "opaque": re.compile(_OPAQUE),
}

# What is wrong with a refused value: the first pattern that matches its beginning. No sentence quotes the value.
_EMPTY = (re.compile(r"\Z"), "The key is empty; send 1 to 255 visible ASCII characters.")
_ALPHABET = (
    re.compile(r"[ -~]*[^ -~]"),
    "The key contains a character that is not visible ASCII; send one without it.",
)
_COMMA = (re.compile(r"[^,]*,"), "The key contains a comma or was sent twice; send one key, once, without a comma.")
_BARE_SPACE = (re.compile(r'[^" ]+ '), "The key contains a space; put it in double quotes, or send it without spaces.")
_BARE_MARK = (
    re.compile(r'[^"\\]*\\|[^"]+"'),
    "The key contains a double quote or a backslash; send one without either.",
)
_UNQUOTED = (re.compile(r'[^"]'), "The key is not in double quotes; send it as a quoted string.")
_BLANK = (re.compile(r'" *"'), "The key between the quotes is blank; send 1 to 255 characters, not only spaces.")
_ESCAPE = (re.compile(r'"[^"]*\\'), "The key contains a backslash; send one without backslashes and double quotes.")
_UNCLOSED = (re.compile(r'"[^"]*\Z'), "The key has an opening double quote but no closing one; send both or neither.")
_TRAILING = (re.compile(rf'"[^"]{{1,{MAX_LENGTH}}}"'), "What follows the quoted key is malformed; send the key alone.")
_FAULTS: dict[KeySyntax, tuple[tuple[re.Pattern[str], str], ...]] = {
    "auto": (_EMPTY, _ALPHABET, _COMMA, _BARE_SPACE, _BARE_MARK, _BLANK, _ESCAPE, _UNCLOSED, _TRAILING),
    "strict": (_EMPTY, _ALPHABET, _COMMA, _UNQUOTED, _BLANK, _ESCAPE, _UNCLOSED, _TRAILING),
    "opaque": (_EMPTY, _ALPHABET, _COMMA),
}
_LONG = f"The key is longer than {MAX_LENGTH} characters; send a shorter one."  # the only fault left


def parse_key(value: str, syntax: KeySyntax) -> Key:
    """Parse *value*, a whole field value, by *syntax*.

    Raises KeyInvalid with a sentence that says what is wrong and never repeats the value.
    """
    value = value.strip(" \t")
    found = _SYNTAXES[syntax].fullmatch(value)
    if found is None:
        raise KeyInvalid(next((fault for pattern, fault in _FAULTS[syntax] if pattern.match(value)), _LONG))
    return Key(found[found.lastindex or 0])
