"""A tester of any server's promises about ``Idempotency-Key``: ``python -m flask_idempotency.conformance URL``.

It sends requests and judges answers. It knows HTTP and nothing of what is behind it: it imports no other part of this
package, neither Flask nor a database, and nothing that is not in the standard library.
"""
