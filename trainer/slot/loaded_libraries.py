"""Keeps the garbage collector of a slot from looking through its libraries: Ray and torch take it 0.2 s."""

import contextlib
import gc

from trainer.ray_train.trainer_kinds import BACKENDS


class LoadedLibraries:
    def __init__(self) -> None:
        self._are_frozen = False

    def import_torch(self) -> None:
        """Before there is work: nearly all trials need it, and it takes seconds."""
        with contextlib.suppress(ImportError):
            BACKENDS["torch"].trainer_class()
        gc.collect()
        self.freeze()

    def freeze(self) -> None:
        """Once in a process: what is loaded by then is no garbage."""
        if not self._are_frozen:
            self._are_frozen = True
            gc.freeze()
