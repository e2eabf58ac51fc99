"""Forms come from our own pages: each has a secret, tied to the browser, that is checked when it returns."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from lockstep.errors import ServiceError

COOKIE = "lockstep_form"
FIELD = "form_token"
KEY_FIELD = "form_key"


class FormTokens:
    """Tokens that other sites cannot know: they can make a browser send a form, but not read one of ours.

    >>> tokens = FormTokens()
    >>> cookie = tokens.new_cookie()
    >>> tokens.check(cookie, tokens.token(cookie))
    >>> tokens.check(cookie, "guess")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ServiceError: LS0780 the form did not come from a page of this service
      why:  its secret is missing, or the service was started anew since the page was loaded.
      try:  load the page again and send the form from there.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    @staticmethod
    def new_cookie() -> str:
        """What a browser is known by."""
        return secrets.token_urlsafe(24)

    def token(self, cookie: str) -> str:
        """What forms of that browser carry."""
        return hmac.new(self._key, cookie.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()

    def check(self, cookie: str, token: str) -> None:
        """LS0780 unless the form is one of ours, sent by the browser that got it."""
        good = hmac.compare_digest(self.token(cookie).encode(), token.encode(errors="surrogateescape"))
        if not cookie or not good:
            raise ServiceError(
                "LS0780",
                "the form did not come from a page of this service",
                why="its secret is missing, or the service was started anew since the page was loaded.",
                hint="load the page again and send the form from there.",
            )
