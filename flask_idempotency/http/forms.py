"""The key for HTML forms, which cannot set headers: a hidden field, fresh in every rendered form."""

from uuid import uuid4

from markupsafe import Markup

from flask_idempotency.core.key import FORM_FIELD


def idempotency_field() -> Markup:
    """Render the hidden field with a new key; sending the same page twice is then the same request."""
    return Markup('<input type="hidden" name="{}" value="{}">').format(FORM_FIELD, uuid4())
