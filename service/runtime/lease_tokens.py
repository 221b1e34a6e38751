"""Issues lease tokens. The database has only their digests, so what it holds lets its reader report for no trial.

A repeated claim must get the same token again. So a token is computed: from the attempt's salt, which is stored, and a
key in the data directory, which all service processes share.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from service.domain.token_digest import token_digest

TOKEN_BYTES = 24


@dataclass(frozen=True)
class IssuedLease:
    """A new lease's token, and what is stored of it."""

    token: str
    digest: str
    salt: str


class LeaseTokens:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self) -> IssuedLease:
        salt = secrets.token_hex(16)
        token = self._token(salt)
        return IssuedLease(token, token_digest(token), salt)

    def of(self, salt: str | None, digest: str) -> str | None:
        """Return the token again. None for a lease of a version that stored tokens, or of another key."""
        token = self._token(salt) if salt is not None else None
        return token if token is not None and token_digest(token) == digest else None

    def _token(self, salt: str) -> str:
        code = hmac.digest(self._key, salt.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(code[:TOKEN_BYTES]).decode()
