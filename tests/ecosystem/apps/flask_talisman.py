"""Flask-Talisman: security headers come fresh on every answer, with a nonce of its own."""

from flask_talisman import Talisman

from tests.ecosystem.shop import Shop

PACKAGE = "flask-talisman"
STEP = "Unchanged."
POLICY = {"default-src": "'self'", "script-src": "'self'"}


class Before(Shop):
    """Registered before us."""

    def build(self) -> None:
        self.add_headers()
        self.protect()
        self.app.post("/orders")(self.view)

    def add_headers(self) -> None:
        """Add the security headers, with a nonce in each answer."""
        self.app.config["SESSION_COOKIE_SECURE"] = False
        Talisman(
            self.app,
            force_https=False,
            session_cookie_secure=False,
            content_security_policy=POLICY,
            content_security_policy_nonce_in=["script-src"],
        )


class After(Before):
    """Registered after us."""

    def build(self) -> None:
        self.protect()
        self.add_headers()
        self.app.post("/orders")(self.view)
