"""The digest by which tokens are stored."""

import hashlib


def token_digest(token: str) -> str:
    """Plain SHA-256, without salt, is enough because tokens are random: there are no likely values to try."""
    return hashlib.sha256(token.encode()).hexdigest()
