"""The digest by which tokens are stored, and what replaces it when a lease is revoked."""

import hashlib


def token_digest(token: str) -> str:
    """Plain SHA-256, without salt, is enough because tokens are random: there are no likely values to try."""
    return hashlib.sha256(token.encode()).hexdigest()


REVOKED = "revoked-"
DIGEST_LENGTH = 64


def revoked_digest(digest: str) -> str:
    """What is stored in place of the digest. It is that of no token, and tells its holder from others."""
    return f"{REVOKED}{digest}"[:DIGEST_LENGTH]
