"""Brings what other service processes decided to those who wait in this one."""

from service.runtime.context import Context
from service.store.trials import ids_told_to_leave


class Telling:
    """Several processes on one database: a cancel may come to one, its trial's holder waits at another."""

    name = "telling"
    every = 1.0
    is_behind = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def run_once(self) -> None:
        waiting = self._context.told.listened_for()
        if waiting:
            with self._context.database.read() as session:
                told = ids_told_to_leave(session)
            self._context.told.ring(waiting & told)
