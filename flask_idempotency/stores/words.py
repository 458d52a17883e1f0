"""Recognises what an SQL statement will do by its words: asking the database would take a round trip each time."""

import re
from enum import Enum, auto
from functools import lru_cache

_QUERY = re.compile(r"[\s(]*(SELECT|WITH|VALUES|TABLE|SHOW)\b", re.IGNORECASE)
_QUESTION = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)  # with ANALYZE it runs what it explains
_CHANGE = re.compile(r"\b(INSERT|DELETE|MERGE|INTO)\b|(?<!\bFOR )(?<!\bKEY )\bUPDATE\b|;\s*\S", re.IGNORECASE)
_CALL = re.compile(r'([\w$."]+)\s*\(')  # a name before a parenthesis
_LONG = 10_000  # characters, such as a thousand values behind IN: not worth remembering

_NO_CHANGE = re.compile(
    r"\s*(SELECT|SHOW|VALUES|TABLE|EXPLAIN|SET|RESET|PRAGMA|BEGIN|START|SAVEPOINT)\b", re.IGNORECASE
)
_COMMIT = re.compile(r"\s*(COMMIT|END)\b", re.IGNORECASE)
_ROLLBACK = re.compile(r"\s*(ROLLBACK|ABORT)\b(?!.*\bTO\b)", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\b.*\bTO\b", re.IGNORECASE | re.DOTALL)
_CHANGE_ANYWHERE = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|REPLACE)\b", re.IGNORECASE)

_WORDS = """
    select distinct from only lateral join on using where having by group filter over within partition window
    and or not in exists any all some between like ilike is case when then else as with recursive materialized
    union except intersect values row array limit offset fetch interval
    char character varchar bit numeric decimal float time timestamp
"""
# The databases' built-in functions that write nothing a rollback would undo. It is one list: an app whose tests run on
# another database often defines the same functions there. Names that an app is likely to give to functions of its own,
# such as log, are left out.
_FUNCTIONS = """
    count sum min max avg every bool_and bool_or array_agg string_agg group_concat stddev variance
    json_agg jsonb_agg json_object_agg jsonb_object_agg json_group_array json_group_object
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    percentile_cont percentile_disc grouping
    coalesce nullif ifnull greatest least cast extract date_part date_trunc date_bin
    now clock_timestamp statement_timestamp transaction_timestamp current_timestamp localtimestamp current_date
    date datetime julianday unixepoch strftime make_date make_interval to_char to_date to_number to_timestamp
    curdate curtime utc_timestamp unix_timestamp from_unixtime date_format str_to_date date_add date_sub datediff
    timestampdiff last_day
    lower upper initcap length char_length character_length octet_length bit_length trim btrim ltrim rtrim lpad rpad
    left right substr substring position strpos instr replace overlay reverse repeat concat concat_ws format
    split_part string_to_array array_to_string regexp_match regexp_matches regexp_replace regexp_split_to_array chr
    ascii hex quote encode decode md5 sha256 gen_random_uuid uuid_generate_v4 random randomblob
    abs ceil ceiling floor round trunc sign mod power pow sqrt exp ln div
    array_length array_position array_append array_cat array_remove cardinality unnest generate_series any_value
    json json_array json_object json_extract json_type json_valid json_array_length json_each json_tree
    json_build_object json_build_array json_extract_path json_extract_path_text json_array_elements
    jsonb_build_object jsonb_build_array jsonb_extract_path jsonb_extract_path_text jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_each jsonb_object_keys jsonb_path_query jsonb_set jsonb_typeof
    to_json to_jsonb row_to_json similarity word_similarity unaccent levenshtein soundex
    to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline
    if isnull find_in_set locate json_unquote json_contains last_insert_id
    nextval currval lastval setval current_setting current_user current_schema version pg_backend_pid typeof
"""
_HARMLESS = frozenset(f"{_WORDS} {_FUNCTIONS}".split())


class Intent(Enum):
    """What a session is about to do with its statements."""

    CHANGE = auto()  # rows
    ASK = auto()  # with a query that calls a function we do not know: it hardly ever writes, but it may
    READ = auto()
    REFRESH = auto()  # an object: no statement says so itself; if it fails the request does, so it needs no savepoint


class Kind(Enum):
    """What a statement does to the transaction that it is part of."""

    QUERY = auto()  # or a setting, or a savepoint: no rows are changed
    COMMIT = auto()
    ROLLBACK = auto()
    UNDO = auto()  # to a savepoint that the app has set by a statement of its own
    CHANGE = auto()
    OTHER = auto()


def intent_of(statement: str) -> Intent:
    """Tell a statement that changes rows from one that reads and one that may do either. Never gives REFRESH."""
    return _known_intent(statement) if len(statement) < _LONG else _judge(statement)


def _judge(statement: str) -> Intent:
    if _CHANGE.search(statement):
        return Intent.CHANGE
    if not _QUERY.match(statement):
        return Intent.ASK if _QUESTION.match(statement) else Intent.CHANGE
    is_harmless = _HARMLESS.issuperset(map(str.lower, _CALL.findall(statement)))
    return Intent.READ if is_harmless else Intent.ASK


_known_intent = lru_cache(maxsize=512)(_judge)  # an app has a few hundred statements


def kind_of(statement: str) -> Kind:
    """Tell a statement that ends the transaction from one that may change rows and one that does not."""
    if _NO_CHANGE.match(statement):
        return Kind.QUERY
    if _COMMIT.match(statement):
        return Kind.COMMIT
    if _ROLLBACK.match(statement):
        return Kind.ROLLBACK
    if _ROLLBACK_TO.match(statement):
        return Kind.UNDO
    return Kind.CHANGE if _CHANGE_ANYWHERE.search(statement) else Kind.OTHER


def is_begin(statement: str) -> bool:
    """Say whether a statement begins a transaction."""
    return statement.lstrip()[:5].upper() == "BEGIN"
