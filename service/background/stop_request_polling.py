"""The loop that passes on stop requests from other service processes to the holders that wait at this one."""

from service.runtime.context import Context
from service.store.trials.trials import stop_requested_ids


class StopRequestPolling:
    """Finds stop requests that another service process has stored while the trial's holder waits at this one."""

    name = "change polling"  # health and metrics show it, so it stays
    every = 1.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_once(self) -> None:
        subscribed = self._context.holder_changes.subscribed_keys()
        if subscribed:
            with self._context.database.read() as session:
                stop_requested = stop_requested_ids(session)
            self._context.holder_changes.notify(subscribed & stop_requested)
