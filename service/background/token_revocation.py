"""Ends open calls whose access token was removed or rotated, or has expired, also through another service process."""

from service.operations.tokens import valid_digests
from service.runtime.context import Context


def end_calls_of_revoked_tokens(context: Context) -> None:
    """Tell the open calls; `service/api/http/security/revocation.py` ends them."""
    open_calls = context.revoked_tokens
    if digests := open_calls.subscribed_keys():
        open_calls.notify(digests - valid_digests(context.database, digests))
