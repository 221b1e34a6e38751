"""The loop that removes what has become too old."""

from functools import partial

from service.operations.age_retention import delete_old_experiments, remove_old_logs, remove_unused_packages
from service.runtime.collected_errors import sum_of_all
from service.runtime.context import Context
from service.store.sql.database import database_now


class AgeRetention:
    """Removes by the database's clock what is older than the settings allow."""

    name = "age retention"
    every = 3600.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_once(self) -> int:
        """Return the number of logs, packages and experiments that were removed."""
        with self._context.database.read() as session:
            now = database_now(session)
        # Experiments first: their logs and packages are not needed then.
        steps = (delete_old_experiments, remove_old_logs, remove_unused_packages)
        return sum_of_all(partial(step, self._context, now) for step in steps)
