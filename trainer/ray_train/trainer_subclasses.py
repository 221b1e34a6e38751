"""Ray's trainers as a slot runs them: with the controller in its own process, or with Ray's plain `fit()`.

Both leave out those of Ray's default callbacks that do harm, or nothing, in a slot.
"""

from collections.abc import Callable
from typing import Any

from ray.train.v2._internal.callbacks import DatasetsCallback, WorkingDirectorySetupCallback
from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ReportCallback

from trainer.ray_train.warm_group import WarmGroup

OMITTED_CALLBACKS = (
    # This process owns the placement group, whose resources are freed with it: nothing is left to clean up.
    PlacementGroupCleanerCallback,
    # It starts a process for each worker group, also without datasets. `DatasetServerCallback` takes its place.
    DatasetsCallback,
    # All runs would share the metrics of this one process.
    ControllerMetricsCallback,
    WorkerMetricsCallback,
    # `WarmTrainWorker` changes the working directory without a call of its own.
    WorkingDirectorySetupCallback,
)


class ReportedCheckpoints(ReportCallback):  # type: ignore[misc]
    """Calls `on_saved(sequence, checkpoint)` for each report with a checkpoint that all ranks have made."""

    def __init__(self, on_saved: Callable[[int, Any], None]) -> None:
        self._on_saved = on_saved
        self._sequence = 0

    def after_report(self, training_report: Any, metrics: Any) -> None:  # noqa: ARG002
        sequence, self._sequence = self._sequence, self._sequence + 1
        if training_report.checkpoint is not None:
            self._on_saved(sequence, training_report.checkpoint)


class ChosenCallbacks:
    """Mixed into a trainer: it runs without Ray's default callbacks that are `omitted`, and with `callbacks`."""

    omitted: tuple[type[Any], ...]
    callbacks: list[Any]

    def _create_default_callbacks(self) -> list[Any]:
        defaults: list[Any] = super()._create_default_callbacks()  # type: ignore[misc]
        return [*(one for one in defaults if not isinstance(one, self.omitted)), *self.callbacks]


class InProcessFit(ChosenCallbacks):
    """Its `fit()` runs the controller in this process, over a warm group."""

    omitted = OMITTED_CALLBACKS
    warm: WarmGroup

    def _initialize_and_run_controller(self, *, scaling_policy: Any, **arguments: Any) -> Any:
        return self.warm.run({**arguments, "scaling_policy": self.warm.scaling_policy(scaling_policy)})


class OutOfProcessFit(ChosenCallbacks):
    """Its plain `fit()` starts no PlacementGroupCleaner, and no process for absent datasets.

    The cleaner, a detached actor, outlives a slot that is killed, and without Ray's dashboard it never notices and
    never ends. The agent removes the placement groups of dead slots instead.
    """

    omitted = (PlacementGroupCleanerCallback, DatasetsCallback)


def in_process_trainer(
    trainer: type[Any], group: WarmGroup, on_saved: Callable[[int, Any], None], callbacks: list[Any]
) -> type[Any]:
    """The trainer's class with `InProcessFit`, for one run.

    `on_saved` as in `ReportedCheckpoints`, `callbacks` beside Ray's own.
    """
    attributes = {"warm": group, "callbacks": [*callbacks, ReportedCheckpoints(on_saved)]}
    return type(f"InProcess{trainer.__name__}", (InProcessFit, trainer), attributes)


def out_of_process_trainer(trainer: type[Any], callbacks: list[Any]) -> type[Any]:
    """The trainer's class with `OutOfProcessFit`; `callbacks` beside Ray's own."""
    return type(f"Plain{trainer.__name__}", (OutOfProcessFit, trainer), {"callbacks": callbacks})
