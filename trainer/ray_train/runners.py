"""The two ways to run an attempt on Ray Train: on warm workers, or by a plain `fit()` with new processes."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ray
from ray.train import FailureConfig, PreemptionInfo, RunConfig, ScalingConfig, UserCallback
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.storage import StorageContext
from ray.util.placement_group import placement_group, remove_placement_group

from trainer.ray_train.cluster_state import remove_groups_of
from trainer.ray_train.datasets.dataset_server_callback import DatasetServerCallback, StartServer
from trainer.ray_train.elastic_policy import Elasticity, ResourcesTimeout
from trainer.ray_train.processes.runtime_environments import worker_runtime_env
from trainer.ray_train.trainer_kinds import BACKENDS, Backend
from trainer.ray_train.trainer_subclasses import in_process_trainer, out_of_process_trainer
from trainer.ray_train.warm_group import WarmGroup
from trainer.resources import DEFAULT_STRATEGY, WorkerGroup, bundles_of
from trainer.storage_uri import split_query

START_SECONDS = 60.0
"""How long a worker group waits for its resources before the attempt is given back."""

Train = Callable[[], None]
ANNOUNCEMENT_SECONDS = 2.0
RanksByNode = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class RunPlan:
    """One run, with the values of `trainer.wire.Trainer`; `scaling` and `validation` are JSON.

    `is_cancelled()` is asked while the run waits for its resources, when there are no workers yet that could be ended.
    `on_success()` is called as soon as all ranks have succeeded and everything that they reported is known: Ray may
    still have to shut the run down. `start_dataset_server`: None for a run without datasets.
    `runtime_env`: what the user asks of Ray for the workers. `torch_config`: arguments of Ray's `TorchConfig`.
    `on_start(workers)` is called before so many workers start, `on_resize_possible(workers)` when an elastic group
    could have so many instead. An elastic group does not use `lost_nodes`. `next_scaling()` is the scaling with which a
    later run would start; None: the same.
    """

    kind: str
    scaling: dict[str, Any]
    env: dict[str, str]
    name: str
    storage_path: str
    is_cancelled: Callable[[], bool]
    on_success: Callable[[], None]
    start_dataset_server: StartServer | None = None
    validation: Mapping[str, Any] | None = None
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    torch_config: Mapping[str, Any] = field(default_factory=dict)
    on_start: Callable[[int], None] = lambda _workers: None
    on_resize_possible: Callable[[int], None] = lambda _workers: None
    lost_nodes: frozenset[str] = frozenset()
    next_scaling: Callable[[], Mapping[str, Any]] | None = None

    @property
    def elasticity(self) -> Elasticity | None:
        """None for a group of a fixed number of workers."""
        workers = WorkerGroup.of(self.scaling, self.validation)
        if not workers.is_elastic:
            return None
        return Elasticity(workers, self.lost_nodes, self.on_resize_possible, self._next_workers)

    def _next_workers(self) -> WorkerGroup:
        scaling = self.scaling if self.next_scaling is None else self.next_scaling()
        return WorkerGroup.of(scaling, self.validation)

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.kind]

    def scaling_config(self) -> ScalingConfig:
        workers = WorkerGroup.of(self.scaling)
        count = (workers.min_workers, workers.max_workers) if workers.is_elastic else workers.max_workers
        given = {key: value for key, value in self.scaling.items() if value and key != "max_workers"}
        return ScalingConfig(**{**given, "num_workers": count})

    def trainer_options(self) -> dict[str, Any]:
        """The arguments of Ray's trainer that its kind needs."""
        return self.backend.options(self.torch_config)

    def dataset_callbacks(self) -> list[Any]:
        return [DatasetServerCallback(self.start_dataset_server)] if self.start_dataset_server is not None else []

    def run_config(self, *callbacks: UserCallback) -> RunConfig:
        """Ray neither retries nor removes checkpoints: both are for the service to decide."""
        return RunConfig(
            name=self.name,
            storage_path=self.storage_path,
            failure_config=FailureConfig(max_failures=0, max_preemption_failures=0, controller_failure_limit=0),
            callbacks=list(callbacks),
            worker_runtime_env=worker_runtime_env(self.env, self.scaling, self.runtime_env),
        )


class Runner(Protocol):
    """Runs the attempts of one slot, one at a time."""

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        """Run to the end. Returns what Ray Train raised, or None."""

    def controller_started(self, actor: Any) -> None:
        """Ray Train's controller of the running attempt has started, as a process of its own."""

    def worker_started(self, actor: Any) -> None:
        """A worker of the running attempt has started. The call may be repeated."""

    def actors(self) -> dict[int, Any]:
        """The actors of the running attempt's ranks that the runner knows by itself. From any thread."""

    @property
    def placement_group(self) -> str | None:
        """The id, in hexadecimal, of the placement group that this process has made. From any thread."""

    async def announce_preemption(self, ranks: RanksByNode, seconds: float) -> None:
        """These nodes go away in so many seconds: `ray.train.get_preemption_info()` tells the training function.

        Returns when all workers know it, or after ANNOUNCEMENT_SECONDS.
        """

    def call_in_workers(self, function: Callable[[], object]) -> None:
        """Call it in the processes of all workers that have started, beside the training function. From any thread."""

    def wake(self, *, ending: bool = False) -> None:
        """All ranks have reported or, with `ending`, are done. From any thread."""

    def end_workers(self) -> None:
        """Kill the running attempt's processes. From any thread."""

    def forget_checkpoint(self, uri: str) -> None:
        """The checkpoint is about to be removed. From any thread."""

    def close(self) -> None:
        """End everything; another run starts anew. From any thread."""


class WarmRunner:
    """Runs on workers that stay from attempt to attempt, with the controller in this process.

    `on_saved(run name, sequence, path)` is called for each checkpoint that all ranks have saved.
    """

    def __init__(self, on_saved: Callable[[str, int, str], None], start_seconds: float = START_SECONDS) -> None:
        self._on_saved = on_saved
        self.group = WarmGroup(start_seconds)

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        def on_saved(sequence: int, checkpoint: Any) -> None:
            self._on_saved(plan.name, sequence, checkpoint.path)

        self.group.prepare(plan.is_cancelled, plan.on_success, plan.on_start, plan.elasticity)
        try:
            trainer = in_process_trainer(plan.backend.trainer_class(), self.group, on_saved, plan.dataset_callbacks())
            config = plan.run_config()
            trainer(train, scaling_config=plan.scaling_config(), run_config=config, **plan.trainer_options()).fit()
        except Exception as error:  # noqa: BLE001 - any error ends this attempt, and not the slot
            return error
        return None

    def controller_started(self, actor: Any) -> None:
        """The controller is in this process."""

    def worker_started(self, actor: Any) -> None:
        """The warm group knows its workers."""

    def actors(self) -> dict[int, Any]:
        workers = [worker for worker in self.group.workers if worker.distributed_context is not None]
        return {worker.distributed_context.world_rank: worker.actor for worker in workers}

    @property
    def placement_group(self) -> str | None:
        found = self.group.placement_group
        return found.placement_group.id.hex() if found is not None else None

    async def announce_preemption(self, ranks: RanksByNode, seconds: float) -> None:
        await _announce_preemption(self.actors().values(), ranks, seconds)

    def call_in_workers(self, function: Callable[[], object]) -> None:
        _call_in(self.actors().values(), function)

    def wake(self, *, ending: bool = False) -> None:
        self.group.wake(ending=ending)

    def end_workers(self) -> None:
        self.group.end_workers()

    def forget_checkpoint(self, uri: str) -> None:
        self.group.forget_checkpoint(split_query(uri)[0])

    async def reported_checkpoints(self, *args: Any) -> Any:
        """The answer to a worker's `ray.train.get_all_reported_checkpoints()`."""
        controller = self.group.controller
        return await controller.reported_checkpoints(*args) if controller else []

    def close(self) -> None:
        self.group.close()


class FreshRunner:
    """Runs by the public `fit()`: each attempt gets a controller, a placement group and workers of its own."""

    def __init__(self, slot: Any, start_seconds: float = START_SECONDS) -> None:
        self._slot = slot
        self._start_seconds = start_seconds
        self._controller: Any = None
        self._actors: list[Any] = []

    def fit(self, train: Train, plan: RunPlan) -> BaseException | None:
        self._controller, self._actors = None, []  # the last run's start may have been told again after its end
        try:
            # It fails for a storage that cannot be used. Ray would report that as the controller's death.
            StorageContext(plan.storage_path, plan.name)
            self._await_resources(plan)
            with _controller_settings(self._start_seconds):
                callbacks = [*plan.dataset_callbacks(), ControllerStarted(self._slot, plan.name)]
                trainer = out_of_process_trainer(plan.backend.trainer_class(), callbacks)
                config = plan.run_config(SavedCheckpoints(self._slot, plan.name))
                trainer(train, scaling_config=plan.scaling_config(), run_config=config, **plan.trainer_options()).fit()
        except Exception as error:  # noqa: BLE001 - any error ends this attempt, and not the slot
            return error
        finally:
            self._controller, self._actors = None, []
        return None

    def _await_resources(self, plan: RunPlan) -> None:
        """Raise ResourcesTimeout unless the worker group's resources become free.

        Ray's controller would wait for them, too, but in another process that cannot be cancelled meanwhile.
        """
        strategy = plan.scaling.get("placement_strategy") or DEFAULT_STRATEGY
        bundles = bundles_of(plan.scaling)
        group = placement_group(
            [one.resources for one in bundles],
            strategy,
            bundle_label_selector=[dict(one.selector) for one in bundles],
        )
        try:
            deadline = time.monotonic() + self._start_seconds
            while not group.wait(1):
                if plan.is_cancelled() or time.monotonic() > deadline:
                    raise ResourcesTimeout
        finally:
            remove_placement_group(group)

    def controller_started(self, actor: Any) -> None:
        self._controller = actor

    def worker_started(self, actor: Any) -> None:
        if actor not in self._actors:
            self._actors.append(actor)

    def actors(self) -> dict[int, Any]:
        """The controller is another process, which alone knows a worker before that has started."""
        return {}

    @property
    def placement_group(self) -> str | None:
        return None

    async def announce_preemption(self, ranks: RanksByNode, seconds: float) -> None:
        await _announce_preemption(self._actors, ranks, seconds)

    def call_in_workers(self, function: Callable[[], object]) -> None:
        _call_in(self._actors, function)

    def wake(self, *, ending: bool = False) -> None:
        """The controller is another process; it polls."""

    def end_workers(self) -> None:
        """Workers that only start end with the controller, which alone knows them, and its placement group."""
        controller, workers = self._controller, self._actors
        for actor in workers:
            ray.kill(actor)
        if not workers and controller is not None:
            ray.kill(controller)
            remove_groups_of(controller)

    def forget_checkpoint(self, uri: str) -> None:
        """The controller is another process, which continues to list the checkpoint."""

    def close(self) -> None:
        self.end_workers()


class ControllerStarted(ControllerCallback):  # type: ignore[misc]
    """Runs in Ray's controller process and tells the slot that it has started."""

    def __init__(self, slot: Any, run: str) -> None:
        self._slot = slot
        self._run = run

    def after_controller_start(self, train_run_context: Any) -> None:  # noqa: ARG002
        self._slot.controller_started.remote(self._run, ray.get_runtime_context().current_actor)


class SavedCheckpoints(UserCallback):  # type: ignore[misc]
    """Runs in Ray's controller process and reports to the slot each checkpoint that all ranks have saved."""

    def __init__(self, slot: Any, run: str) -> None:
        self._slot = slot
        self._run = run
        self._sequence = 0

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:  # noqa: ARG002
        sequence, self._sequence = self._sequence, self._sequence + 1
        if checkpoint is not None:
            ray.get(self._slot.checkpoint_saved.remote(self._run, sequence, checkpoint.path))


async def _announce_preemption(workers: Iterable[Any], ranks: RanksByNode, seconds: float) -> None:
    """As Ray's own watcher of drained nodes, which is off: the agent watches them, and the slot ends the run."""
    info = PreemptionInfo(int((time.time() + seconds) * 1000), {node: list(own) for node, own in ranks.items()})
    calls = [asyncio.wrap_future(actor.mark_preempt.remote(info).future()) for actor in workers]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(ANNOUNCEMENT_SECONDS, seconds / 2)):
            await asyncio.gather(*calls, return_exceptions=True)  # a worker that has ended needs to know nothing


def _call_in(workers: Iterable[Any], function: Callable[[], object]) -> None:
    for actor in workers:
        actor.execute.remote(function)


@contextlib.contextmanager
def _controller_settings(start_seconds: float) -> Iterator[None]:
    """Have Ray's controller poll often: by default it takes one report from each worker every two seconds."""
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
