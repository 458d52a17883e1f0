"""Which promises each fault breaks that can be planted in the small server."""

# A fault → the promises that it breaks. More than one only where they follow from it.
FAULTS = {
    "ignores the key": {"retry-runs-once"},
    "says 409 for a finished key": {"retry-status"},
    "encodes JSON again": {"retry-body"},
    "drops headers": {"retry-headers"},
    "marks first answers": {"retry-marked"},
    "replays cookies": {"retry-cookies"},
    "knows the header's name in one case only": {"header-case"},
    "compares bytes": {"member-order"},
    "compares the charset": {"media-type"},
    "compares trace ids": {"other-headers"},
    "reads no chunks": {"chunked"},
    "leaves large bodies unprotected": {"large-body"},
    "compares no body": {"other-value"},
    "runs before it refuses": {"other-value", "other-query", "other-path", "other-method"},
    "says 409 for another body": {"refusal-status", "slow-other-value"},
    "takes numbers and texts for the same": {"other-type"},
    "takes integers for doubles": {"big-integers"},
    "takes the last of repeated members": {"repeated-members"},
    "compares no query": {"other-query"},
    "compares no path": {"other-path"},
    "compares no method": {"other-method"},
    "answers GET from the record": {"safe-method"},
    "forgets the key when it refuses": {"refusal-harmless"},
    "runs copies of a running request": {"burst-runs-once"},
    "fails in a race": {"burst-answers"},
    "stays in flight after a race": {"burst-settles"},
    "holds its lock for a moment only": {"slow-runs-once"},
    "says 409 before 422": {"slow-other-value"},
    "forgets the key when the client leaves": {"hang-up-runs-once"},
    "stays in flight when the client leaves": {"hang-up-settles"},
    "does not look again after it waited": {"slow-body"},
    "takes half a body for a request": {"cut-body"},
    "replays a 5xx": {"server-error"},
    "stays in flight after a 5xx": {"server-error"},
    "takes equal bodies for retries": {"key-missing"},
    "ignores malformed keys": {
        "key-empty",
        "key-control",
        "key-non-ascii",
        "key-too-long",
        "key-comma",
        "key-twice",
        "key-unbalanced",
    },
    **{
        f"{verb} a key that is {fault}": {f"key-{fault}"}
        for verb in ("ignores", "takes")
        for fault in ("empty", "control", "non-ascii", "too-long", "comma", "twice", "unbalanced")
    },
    "refuses quoted keys": {"key-quoted"},
    "takes quotes for a part of the key": {"key-quoted", "key-unbalanced"},
    "takes keys without their case": {"key-case"},
    "shares keys between callers": {"other-caller"},
    "replays before it authorises": {"authorised-replay"},
    "lets a 401 use up the key": {"unauthorised"},
    "explains nothing": {"explained"},
}
NEEDED_WITH = {"takes equal bodies for retries": "needs no key"}

STRIPE_FAULTS = {
    "encodes JSON again": {"retry-body"},
    "marks no replays": {"retry-marked"},
    "compares no body": {"other-value"},
    "has no error object": {"explained"},
    "numbers no requests": {"stripe-headers"},
    "shares keys between callers": {"other-caller"},
    "takes a key that is too-long": {"key-too-long"},
}

# What answers alone do not show: whether a refused request, or one whose client has left, took effect.
ONLY_COUNTED = ("runs before it refuses", "forgets the key when the client leaves")
