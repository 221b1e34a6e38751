"""The two ways to run an attempt on Ray Train: over kept workers, or by a plain `fit()`."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.v2._internal.execution.storage import StorageContext
from ray.util.placement_group import placement_group, remove_placement_group

from trainer.ray_train.backends import BACKENDS, Backend
from trainer.ray_train.warm_group import WarmGroup, in_process_trainer, without_placement_group_cleaner
from trainer.resources import gang

# How long a gang's resources may take to come together before the attempt is given back.
START_SECONDS = 60.0

Train = Callable[[], None]


@dataclass(frozen=True)
class RunPlan:
    """One run: the trainer's part of an assignment, in Ray's terms.

    `abandoned()` says whether the run is not wanted any more. It is asked while the gang's resources come together,
    when there are no workers yet that could be ended. `succeeded()` is called when all ranks have come to a good end
    and all they reported is known, as soon as this can be told: Ray may still have to take the run down.
    """

    trainer: dict[str, Any]
    name: str
    storage_path: str
    abandoned: Callable[[], bool]
    succeeded: Callable[[], None]

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.trainer["kind"]]

    def scaling(self) -> ScalingConfig:
        return ScalingConfig(**{key: value for key, value in self.trainer["scaling"].items() if value})

    def config(self, *callbacks: UserCallback) -> RunConfig:
        # Retries are the service's, so Ray gets none. Nor does Ray remove checkpoints: it does not know which of them
        # the service has heard of.
        return RunConfig(
            name=self.name,
            storage_path=self.storage_path,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            callbacks=list(callbacks),
            worker_runtime_env={"env_vars": self.trainer["env"]} if self.trainer["env"] else {},
        )


class GangNotFormed(RuntimeError):
    """The resources of a gang did not come free together in time."""


class Runner(Protocol):
    """Runs the attempts of one slot, one at a time."""

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        """Run to the end. Returns what Ray Train raised, or None."""

    def joined(self, actor: Any) -> None:
        """A worker of the running attempt has started."""

    @property
    def placement_group(self) -> str | None:
        """The hexadecimal id of the gang's, if this process has made it. From any thread."""

    def wake(self, *, ending: bool = False) -> None:
        """All ranks have reported, or, with `ending`, are done. From any thread."""

    def end_workers(self) -> None:
        """End the running attempt's processes at once. From any thread."""

    def forget(self, checkpoint: str) -> None:
        """The checkpoint at this URI is about to be removed. From any thread."""

    def close(self) -> None:
        """End everything. From any thread; nothing can be run afterwards."""


class WarmRunner:
    """Over workers that stay from attempt to attempt, with the controller in this process.

    `saved(run name, sequence, checkpoint's path)` is called for each checkpoint that all ranks have saved.
    """

    def __init__(self, saved: Callable[[str, int, str], None], start_seconds: float = START_SECONDS) -> None:
        self._saved = saved
        self.kept = WarmGroup(start_seconds)

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        def saved(sequence: int, checkpoint: Any) -> None:
            self._saved(plan.name, sequence, checkpoint.path)

        self.kept.abandoned, self.kept.succeeded = plan.abandoned, plan.succeeded
        try:
            trainer = in_process_trainer(plan.backend.trainer_class(), self.kept, saved)
            options = plan.backend.options()
            trainer(train, scaling_config=plan.scaling(), run_config=plan.config(), **options).fit()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's end, not the slot's
            return error
        return None

    def joined(self, actor: Any) -> None:
        """The kept group knows its workers."""

    @property
    def placement_group(self) -> str | None:
        kept = self.kept.placement_group
        return kept.placement_group.id.hex() if kept is not None else None

    def wake(self, *, ending: bool = False) -> None:
        self.kept.wake(ending=ending)

    def end_workers(self) -> None:
        self.kept.end_workers()

    def forget(self, checkpoint: str) -> None:
        self.kept.forget(checkpoint.partition("?")[0])

    def close(self) -> None:
        self.kept.close()


class FreshRunner:
    """By the public `fit()`: a controller, a placement group and workers of its own for each attempt."""

    def __init__(self, slot: Any, start_seconds: float = START_SECONDS) -> None:
        self._slot = slot
        self._start_seconds = start_seconds
        self._actors: list[Any] = []

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        try:
            # Storage that can't be used would otherwise be told as the controller's death.
            StorageContext(plan.storage_path, plan.name)
            self._await_resources(plan)
            with _quick_polls(self._start_seconds):
                trainer, options = without_placement_group_cleaner(plan.backend.trainer_class()), plan.backend.options()
                config = plan.config(SavedCheckpoints(self._slot, plan.name))
                trainer(train, scaling_config=plan.scaling(), run_config=config, **options).fit()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's end, not the slot's
            return error
        finally:
            self._actors = []
        return None

    def _await_resources(self, plan: RunPlan) -> None:
        """Raise GangNotFormed unless the gang's resources are free together.

        Ray's controller would wait for them, too, but in another process, and deaf meanwhile.
        """
        scaling = plan.trainer["scaling"]
        group = placement_group(gang(scaling), scaling.get("placement_strategy") or "PACK")
        try:
            until = time.monotonic() + self._start_seconds
            while not group.wait(1):
                if plan.abandoned() or time.monotonic() > until:
                    raise GangNotFormed
        finally:
            remove_placement_group(group)

    def joined(self, actor: Any) -> None:
        self._actors.append(actor)

    @property
    def placement_group(self) -> str | None:
        return None

    def wake(self, *, ending: bool = False) -> None:
        """The controller is another process; it polls."""

    def end_workers(self) -> None:
        for actor in self._actors:
            ray.kill(actor)

    def forget(self, checkpoint: str) -> None:
        """The controller is another process, and goes on listing it."""

    def close(self) -> None:
        self.end_workers()


class SavedCheckpoints(UserCallback):  # type: ignore[misc]
    """Runs in Ray's controller process and tells the slot of each checkpoint that all ranks have saved."""

    def __init__(self, slot: Any, run: str) -> None:
        self._slot = slot
        self._run = run
        self._sequence = 0

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:  # noqa: ARG002
        sequence, self._sequence = self._sequence, self._sequence + 1
        if checkpoint is not None:
            ray.get(self._slot.saved.remote(self._run, sequence, checkpoint.path))


@contextlib.contextmanager
def _quick_polls(start_seconds: float) -> Iterator[None]:
    """Ray's controller looks at its workers every two seconds, and takes one report each time: far too seldom."""
    settings = {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(start_seconds),
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name, None)
