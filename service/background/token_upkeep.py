"""The loop that stores when tokens were last used, and ends open calls whose token is not valid any more."""

from service.operations.tokens import store_use, valid_digests
from service.runtime.context import Context


class TokenUpkeep:
    name = "token upkeep"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_once(self) -> None:
        """Calls end first: also while the database takes no writes, as in a failover, a token may expire."""
        self._end_calls()
        self._store_use()

    def _store_use(self) -> None:
        use = self._context.token_use
        names = use.take_unstored()
        try:
            if names:
                store_use(self._context.database, names)
        except Exception:
            use.put_back(names)
            raise

    def _end_calls(self) -> None:
        open_calls = self._context.revoked_tokens
        if digests := open_calls.subscribed_keys():
            open_calls.notify(digests - valid_digests(self._context.database, digests))
