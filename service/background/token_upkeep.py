"""The loop for access tokens: it ends calls of revoked ones (`token_revocation`), and stores the use (`token_use`)."""

from service.background.token_revocation import end_calls_of_revoked_tokens
from service.background.token_use import store_noted_use
from service.runtime.context import Context


class TokenUpkeep:
    name = "token upkeep"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_once(self) -> None:
        """Calls end first: also while the database takes no writes, as in a failover, a token may expire."""
        end_calls_of_revoked_tokens(self._context)
        store_noted_use(self._context)
