"""Ray Train's controller in the slot's own process, over workers that outlive a run.

A plain `fit()` starts a controller process, a placement group and worker processes for each run and ends them all with
the run. Here the controller runs in the caller's thread, and everything that it would shut down stays for the next run
of the same shape. The tests in `tests/trainer/ray_train/test_ray_train_internals.py` name each assumption about Ray.
"""

import asyncio
import contextlib
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from typing import Any

import ray
from ray.train import BackendConfig
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group.placement_group_handle import PlacementGroupHandle
from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

from trainer.ray_train.actor_creation import actors_created_by, synchronization_actor_created_by
from trainer.ray_train.elastic_policy import Elasticity, RoomPolicy
from trainer.ray_train.worker_actor import WarmTrainWorker, environment, lower_log_volume

PREEMPTION_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
CONTROLLER_LOGS = "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING"

LIVENESS_SECONDS = 0.5
"""How often the controller polls the workers without a wake-up. This is how it notices a dead process."""

WAITING_SECONDS = 1.0
"""How often it asks a scaling policy again that has not decided. Ray's own controller does not pause."""

ELASTIC_PLACEMENT_SECONDS = 10.0
"""How long the workers of an elastic group may take to get what was free when their number was decided."""

ENDING_SECONDS = 0.005
"""How often it polls once all ranks have said that they are done and only their threads have to end."""


class WarmPlacementGroup(PlacementGroupHandle):  # type: ignore[misc]
    """A placement group that Ray Train's shutdown leaves alone, and whose start can be cancelled."""

    def __init__(self, handle: PlacementGroupHandle, group: "WarmGroup") -> None:
        self.handle = handle
        self._group = group

    @property
    def placement_group(self) -> Any:
        return self.handle.placement_group

    def ready(self) -> Any:
        return self.handle.ready()

    def wait(self, timeout_seconds: float = 30) -> bool:
        if self._group.workers:
            return True
        waited = 0.0
        while not self._group.is_cancelled():
            if self.handle.wait(min(1.0, timeout_seconds - waited)):
                return True
            waited += 1.0
            if waited >= timeout_seconds:
                break
        return False

    def shutdown(self) -> None:
        """Does nothing: `WarmGroup.close` removes the placement group."""


class WarmGroupState(WorkerGroupState):  # type: ignore[misc]
    """The state of a worker group whose shutdown ends no process."""

    def shutdown(self) -> None:
        """Does nothing: `WarmGroup` ends the workers and the group."""


class WarmGroup:
    """The placement group, synchronization actor and workers of one shape, kept from run to run.

    It takes the place of Ray's `WorkerGroup` class as the controller's factory. `start_seconds`: how long the
    placement group may take to start. An elastic group's shape is a range of sizes: where a run has another size than
    the one before, or has lost a node, it gets a new placement group and new workers.
    """

    is_cancelled: Callable[[], bool]
    on_success: Callable[[], None]
    on_start: Callable[[int], None]
    elasticity: Elasticity | None

    def __init__(self, start_seconds: float) -> None:
        self._start_seconds = start_seconds
        self.placement_group: WarmPlacementGroup | None = None
        self.sync_actor: Any = None
        self.workers: list[Any] = []
        self._starting: list[Any] = []
        self.coordinator: Any = None
        self.controller: WarmController | None = None

    def prepare(
        self,
        is_cancelled: Callable[[], bool],
        on_success: Callable[[], None],
        on_start: Callable[[int], None],
        elasticity: Elasticity | None,
    ) -> None:
        """Set the callbacks of the next run. `is_cancelled` is polled while the group waits for resources.

        `on_success` is called when all of its workers have succeeded, before Ray shuts the run down, and
        `on_start(workers)` before they start.
        """
        self.is_cancelled, self.on_success, self.on_start = is_cancelled, on_success, on_start
        self.elasticity = elasticity

    def create(self, train_run_context: Any, worker_group_context: Any, callbacks: Any = None) -> "WarmWorkerGroup":
        """As `WorkerGroup.create`."""
        size = worker_group_context.num_workers
        self._fit_to(size)
        self.on_start(size)
        group = WarmWorkerGroup(train_run_context, worker_group_context, callbacks)
        group.warm = self
        group._worker_group_start_timeout_s = self._placement_seconds  # noqa: SLF001
        try:
            with synchronization_actor_created_by(self._synchronization_actor_or):
                group._start()  # noqa: SLF001
        except BaseException:
            self.close()  # a placement group that is still pending must not start later
            raise
        return group

    def run(self, controller_arguments: dict[str, Any]) -> Any:
        """Run a controller to its end; returns Ray's `Result`."""
        return asyncio.run(self._run(controller_arguments))

    async def _run(self, controller_arguments: dict[str, Any]) -> Any:
        self.controller = WarmController(self, **controller_arguments)
        try:
            await self.controller.run()
            return self.controller.get_result()
        finally:
            self.controller = None

    def wake(self, *, ending: bool = False) -> None:
        """Have the controller poll the workers now. From any thread."""
        controller = self.controller
        if controller is not None:
            controller.wake(ending=ending)

    def forget_checkpoint(self, path: str) -> None:
        """Have the running controller no longer list this checkpoint. From any thread."""
        controller = self.controller
        if controller is not None:
            controller.forget_checkpoint(path)

    def end_workers(self) -> None:
        """Kill the worker processes; the next run gets new ones in the same placement group. From any thread."""
        workers, self.workers = self.workers, []
        for actor in (*self._starting, *(worker.actor for worker in workers)):
            ray.kill(actor)
        self.wake()

    def workers_or(self, create: Callable[[], list[Any]]) -> list[Any]:
        """The kept workers, created on the first run."""
        if not self.workers:
            try:
                with actors_created_by(self._starting_worker):
                    self.workers = create()
            finally:
                self._starting = []
        return self.workers

    def _starting_worker(self, create: Callable[[], Any]) -> Any:
        """A new worker's actor, known from now on: Ray's worker group knows it when it has answered.

        Removing the placement group instead would not do: if Ray registers the actor at that moment, the actor waits
        for its resources without end.
        """
        actor = create()
        self._starting.append(actor)
        if self.is_cancelled():
            ray.kill(actor)
        return actor

    def scaling_policy(self, rays_own: Any) -> Any:
        """The scaling policy of the next run, in place of Ray's own."""
        config = rays_own.scaling_config
        if self.elasticity is None:
            policy = type("WarmScalingPolicy", (WarmResourceRequest, type(rays_own)), {"warm": self})
            return policy(config)
        return RoomPolicy(config, self.elasticity, self._kept_placement_group, self.is_cancelled, self._start_seconds)

    def _kept_placement_group(self) -> Any:
        return self.placement_group.placement_group if self.placement_group is not None else None

    @property
    def _placement_seconds(self) -> float:
        return self._start_seconds if self.elasticity is None else min(ELASTIC_PLACEMENT_SECONDS, self._start_seconds)

    def _fit_to(self, size: int) -> None:
        """Keep nothing of an elastic group that has another size now, or whose placement group is not whole."""
        kept = self._kept_placement_group()
        if self.elasticity is None or kept is None:
            return
        if kept.bundle_count != size or not self.elasticity.is_whole(kept):
            self._end_group()

    def close(self) -> None:
        """End everything. From any thread."""
        self._end_group()
        if self.coordinator is not None:
            coordinator, self.coordinator = self.coordinator, None
            coordinator.cancel_resource_request()

    def _end_group(self) -> None:
        self.end_workers()
        if self.sync_actor is not None:
            ray.kill(self.sync_actor)
            self.sync_actor = None
        self._remove_placement_group()

    def _remove_placement_group(self) -> None:
        removed, self.placement_group = self.placement_group, None
        if removed is not None:
            removed.handle.shutdown()

    def placement_group_or(self, create: Callable[[], PlacementGroupHandle]) -> WarmPlacementGroup:
        """The kept placement group, created on the first run."""
        if self.placement_group is None:
            self.placement_group = WarmPlacementGroup(create(), self)
        return self.placement_group

    def _synchronization_actor_or(self, create: Callable[[], Any]) -> Any:
        # A run that ended during a barrier leaves the actor unusable, so new workers start with a new one.
        if self.sync_actor is None or not self.workers:
            if self.sync_actor is not None:
                ray.kill(self.sync_actor)
            self.sync_actor = create()
        return self.sync_actor


class WarmResourceRequest:
    """Mixed into Ray's scaling policy: requests the group's resources from the autoscaler once, not for each run."""

    warm: WarmGroup

    def after_controller_start(self, train_run_context: Any) -> None:
        if self.warm.coordinator is None:
            super().after_controller_start(train_run_context)  # type: ignore[misc]
            self.warm.coordinator = vars(self)["_coordinator_client"]
        self._coordinator_client = self.warm.coordinator

    async def before_controller_shutdown(self) -> None:
        """Does nothing: `WarmGroup.close` cancels the request, and Ray renews it when it is due."""


class WarmWorkerGroup(WorkerGroup):  # type: ignore[misc]
    """Ray's worker group over the kept placement group and workers.

    `prefetched` holds the answers, as ObjectRefs, to calls that the backend is going to make to the first worker. Its
    configuration says which those are, and what is called in place of each.
    """

    warm: WarmGroup
    prefetched: dict[Callable[..., Any], Any]
    _worker_cls = WarmTrainWorker

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> WarmPlacementGroup:
        return self.warm.placement_group_or(
            lambda: WorkerGroup._create_placement_group(self, scaling_config, worker_group_context)  # noqa: SLF001
        )

    def _init_train_context_on_workers(self, workers: list[Any], *args: Any) -> None:
        original = self._train_run_context
        calls = getattr(original.backend_config, "prefetched_calls", {})
        self.prefetched = {call: workers[0].execute_async(instead) for call, instead in calls.items()}
        # No worker reads the backend's configuration. Ours is of a class that would be pickled whole with each run.
        self._train_run_context: Any = copy(original)
        vars(self._train_run_context)["backend_config"] = BackendConfig()
        try:
            super()._init_train_context_on_workers(workers, *args)
        finally:
            self._train_run_context = original

    def _create_workers(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self.warm.workers_or(lambda: WorkerGroup._create_workers(self, *args, **kwargs))  # noqa: SLF001

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> Any:
        """None where it asks for nothing: Ray's idle worker processes serve only what has exactly their environment."""
        environment: dict[str, Any] = WorkerGroup._get_worker_runtime_env(custom_runtime_env)  # noqa: SLF001
        return environment if any(environment.values()) else None

    @staticmethod
    def _decorate_worker_log_file_paths(workers: list[Any]) -> list[Any]:
        """Saves a call to each worker: only Ray's state export, which is off, uses the paths of the log files."""
        return workers

    def shutdown(self) -> None:
        state: Any = self.get_worker_group_state()
        self._worker_group_state: Any = WarmGroupState(**{f.name: getattr(state, f.name) for f in fields(state)})
        super().shutdown()


class WarmController(TrainController):  # type: ignore[misc]
    """Ray's controller, woken by events instead of polling every two seconds."""

    def __init__(self, group: WarmGroup, **arguments: Any) -> None:
        # Configuring the loggers takes longer than everything else that the controller does at its start.
        logs = "0" if group.workers else "1"
        with environment(PREEMPTION_WATCHER, "0"), environment(CONTROLLER_LOGS, logs):
            super().__init__(**arguments)
        lower_log_volume()
        self.worker_group_cls = self._warm_group = group
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._ending = False

    def wake(self, *, ending: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._wake, ending)

    def _wake(self, ending: bool) -> None:
        self._ending = self._ending or ending
        self._woken.set()

    def forget_checkpoint(self, path: str) -> None:
        """Remove a deleted checkpoint from Ray's list, which Ray rewrites with every checkpoint."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._forget_checkpoint, path)

    def _forget_checkpoint(self, path: str) -> None:
        listed: list[Any] = self._checkpoint_manager._checkpoint_results  # noqa: SLF001
        listed[:] = [result for result in listed if not path.endswith(result.checkpoint.path)]

    async def _step(self) -> Any:
        state = self.get_state()
        result = await super()._step()
        if result.next_state is state:
            await asyncio.sleep(WAITING_SECONDS)
        return result

    async def _poll_workers(self) -> Any:
        interval = ENDING_SECONDS if self._ending else LIVENESS_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), interval)
        self._woken.clear()
        self._latest_poll_time = float("-inf")
        status = await super()._poll_workers()
        if self._is_training_succeeded(status):
            self._warm_group.on_success()
        return status

    async def reported_checkpoints(self, *args: Any) -> Any:
        """`get_all_reported_checkpoints`, for callers in another event loop."""
        call = asyncio.run_coroutine_threadsafe(self.get_all_reported_checkpoints(*args), self._loop)
        return await asyncio.wrap_future(call)
