"""Stores when access tokens were last used, which calls have noted in memory."""

from service.operations.tokens import store_use
from service.runtime.context import Context


def store_noted_use(context: Context) -> None:
    """Store what was noted since the last time. What cannot be stored is kept for the next one."""
    use = context.token_use
    names = use.take_unstored()
    try:
        if names:
            store_use(context.database, names)
    except Exception:
        use.put_back(names)
        raise
