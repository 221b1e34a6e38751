"""Ray Train's controller in our own process, over workers that outlive a run.

Everything of Paceline that depends on Ray Train's internals is here, in `kept_worker.py` and in `worker_side.py`. A
plain `fit()` starts a controller process, placement group and worker processes for each run and ends them all with it;
here the controller runs in the caller's thread, and what it takes down is kept for the next run of the same shape. The
tests in `tests/trainer/test_ray_internals.py` name each assumption about Ray.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields
from typing import Any

import ray
from ray.train import BackendConfig
from ray.train.v2._internal.callbacks import DatasetsCallback, WorkingDirectorySetupCallback
from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ReportCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import worker_group as ray_worker_group
from ray.train.v2._internal.execution.worker_group.placement_group_handle import PlacementGroupHandle
from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

from trainer.ray_train.worker_actor import WarmTrainWorker, environment, quiet

# Callbacks that cost a process or a second per run: nothing to clean up after ourselves (this process owns the
# placement group, and its death frees it), no datasets, and metrics that would be those of one process for all runs.
# The working directory is changed without a call of its own, by `WarmTrainWorker`.
OMITTED_CALLBACKS = (
    PlacementGroupCleanerCallback,
    DatasetsCallback,
    ControllerMetricsCallback,
    WorkerMetricsCallback,
    WorkingDirectorySetupCallback,
)

PREEMPTION_WATCHER = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
CONTROLLER_LOGS = "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING"

# How often the workers are looked at when nobody has news of them: this is how a dead process is noticed.
LIVENESS_SECONDS = 0.5
# ... and when the ranks have said that they are done, and only their threads' ends are waited for.
ENDING_SECONDS = 0.005


class WarmPlacementGroup(PlacementGroupHandle):  # type: ignore[misc]
    """A placement group that Ray Train's own shutdown leaves alone, and whose forming can be abandoned."""

    def __init__(self, handle: PlacementGroupHandle, kept: "WarmGroup") -> None:
        self.handle = handle
        self._kept = kept

    @property
    def placement_group(self) -> Any:
        return self.handle.placement_group

    def ready(self) -> Any:
        return self.handle.ready()

    def wait(self, timeout_seconds: float = 30) -> bool:
        if self._kept.workers:
            return True
        waited = 0.0
        while not self._kept.abandoned():
            if self.handle.wait(min(1.0, timeout_seconds - waited)):
                return True
            waited += 1.0
            if waited >= timeout_seconds:
                break
        return False

    def shutdown(self) -> None:
        """Kept. `WarmGroup.close` removes it."""


class WarmGroupState(WorkerGroupState):  # type: ignore[misc]
    """The state of a group whose shutdown ends nothing."""

    def shutdown(self) -> None:
        """Kept. `WarmGroup` ends workers and group."""


class WarmGroup:
    """The placement group, synchronization actor and workers of one shape, kept from run to run.

    It stands in for Ray's `WorkerGroup` class as the controller's factory of groups. `start_seconds`: how long the
    placement group may take to form. `abandoned`: says, meanwhile, whether the present run is not wanted any more.
    `succeeded`: is told when all workers of the present run have ended well, before anything is taken down.
    """

    abandoned: Callable[[], bool]
    succeeded: Callable[[], None]

    def __init__(self, start_seconds: float) -> None:
        self._start_seconds = start_seconds
        self.placement_group: WarmPlacementGroup | None = None
        self.sync_actor: Any = None
        self.workers: list[Any] = []
        self.coordinator: Any = None
        self.controller: WarmController | None = None

    def create(self, train_run_context: Any, worker_group_context: Any, callbacks: Any = None) -> "WarmWorkerGroup":
        """As `WorkerGroup.create`."""
        group = WarmWorkerGroup(train_run_context, worker_group_context, callbacks)
        group.kept = self
        group._worker_group_start_timeout_s = self._start_seconds  # noqa: SLF001
        try:
            with self._synchronization():
                group._start()  # noqa: SLF001
        except BaseException:
            self.close()  # what has not formed yet must not do so behind our back
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
        """There is news of the workers. From any thread."""
        controller = self.controller
        if controller is not None:
            controller.wake(ending=ending)

    def forget(self, checkpoint: str) -> None:
        """Let the running controller list this checkpoint no more. From any thread."""
        controller = self.controller
        if controller is not None:
            controller.forget(checkpoint)

    def end_workers(self) -> None:
        """Kill the worker processes; the next run gets new ones in the same place. From any thread."""
        workers, self.workers = self.workers, []
        for worker in workers:
            ray.kill(worker.actor)
        self.wake()

    def close(self) -> None:
        """End everything. From any thread."""
        self.end_workers()
        if self.sync_actor is not None:
            ray.kill(self.sync_actor)
            self.sync_actor = None
        if self.placement_group is not None:
            self.placement_group.handle.shutdown()
            self.placement_group = None
        if self.coordinator is not None:
            coordinator, self.coordinator = self.coordinator, None
            coordinator.cancel_resource_request()

    def keep_placement_group(self, create: Callable[[], PlacementGroupHandle]) -> WarmPlacementGroup:
        if self.placement_group is None:
            self.placement_group = WarmPlacementGroup(create(), self)
        return self.placement_group

    @contextlib.contextmanager
    def _synchronization(self) -> Iterator[None]:
        """Let `WorkerGroup._start_impl` find our synchronization actor where it makes its own."""
        original = ray_worker_group.SynchronizationActor
        ray_worker_group.SynchronizationActor = _ActorClassProxy(self._synchronization_actor, original)
        try:
            yield
        finally:
            ray_worker_group.SynchronizationActor = original

    def _synchronization_actor(self, create: Callable[[], Any]) -> Any:
        # After a run that ended in mid-barrier its state is worth nothing; it starts while the workers do.
        if self.sync_actor is None or not self.workers:
            if self.sync_actor is not None:
                ray.kill(self.sync_actor)
            self.sync_actor = create()
        return self.sync_actor


class WarmResourceRequest:
    """Mixed into Ray's scaling policy: what is kept is asked for once, not for each run."""

    kept: WarmGroup

    def after_controller_start(self, train_run_context: Any) -> None:
        if self.kept.coordinator is None:
            super().after_controller_start(train_run_context)  # type: ignore[misc]
            self.kept.coordinator = vars(self)["_coordinator_client"]
        self._coordinator_client = self.kept.coordinator

    async def before_controller_shutdown(self) -> None:
        """Kept. `WarmGroup.close` takes it back; Ray itself renews it where it is due."""


class _ActorClassProxy:
    """`Actor.options(...).remote(...)`, answered by `keep(create)`."""

    def __init__(self, keep: Callable[[Callable[[], Any]], Any], actor: Any) -> None:
        self._keep = keep
        self._actor = actor

    def options(self, **options: Any) -> "_ActorClassProxy":
        return _ActorClassProxy(self._keep, self._actor.options(**options))

    def remote(self, **arguments: Any) -> Any:
        return self._keep(lambda: self._actor.remote(**arguments))


class WarmWorkerGroup(WorkerGroup):  # type: ignore[misc]
    """Ray's worker group over what is kept."""

    kept: WarmGroup
    early: dict[Callable[..., Any], Any]
    _worker_cls = WarmTrainWorker

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> WarmPlacementGroup:
        return self.kept.keep_placement_group(
            lambda: WorkerGroup._create_placement_group(self, scaling_config, worker_group_context)  # noqa: SLF001
        )

    def _init_train_context_on_workers(self, workers: list[Any], *args: Any) -> None:
        whole = self._train_run_context
        # Its answer is there by the time Ray's backend would ask.
        self.early = {ask: workers[0].execute_async(ask) for ask in getattr(whole.backend_config, "asked_early", ())}
        # Ours is of a class that would have to travel whole, for nobody reads it there.
        self._train_run_context: Any = copy(whole)
        vars(self._train_run_context)["backend_config"] = BackendConfig()
        try:
            super()._init_train_context_on_workers(workers, *args)
        finally:
            self._train_run_context = whole

    def _create_workers(self, *args: Any, **kwargs: Any) -> list[Any]:
        if not self.kept.workers:
            self.kept.workers = super()._create_workers(*args, **kwargs)
        return self.kept.workers

    @staticmethod
    def _decorate_worker_log_file_paths(workers: list[Any]) -> list[Any]:
        """Not asked for: only Ray's export of its state, which is off, tells where a worker's log is."""
        return workers

    def shutdown(self) -> None:
        state: Any = self.get_worker_group_state()
        self._worker_group_state: Any = WarmGroupState(**{f.name: getattr(state, f.name) for f in fields(state)})
        super().shutdown()


class WarmController(TrainController):  # type: ignore[misc]
    """Ray's controller, woken by news instead of polling every two seconds."""

    def __init__(self, kept: WarmGroup, **arguments: Any) -> None:
        # To set its loggers up again takes longer than all else that the controller does to begin.
        logs = "0" if kept.workers else "1"
        with environment(PREEMPTION_WATCHER, "0"), environment(CONTROLLER_LOGS, logs):
            super().__init__(**arguments)
        quiet()
        self.worker_group_cls = self._kept = kept
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ending = False

    def wake(self, *, ending: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._woken, ending)

    def _woken(self, ending: bool) -> None:
        self._ending = self._ending or ending
        self._news.set()

    def forget(self, checkpoint: str) -> None:
        """As Ray does with those it removes by itself: what it lists, it writes down anew with every checkpoint."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._forget, checkpoint)

    def _forget(self, checkpoint: str) -> None:
        listed: list[Any] = self._checkpoint_manager._checkpoint_results  # noqa: SLF001
        listed[:] = [result for result in listed if not checkpoint.endswith(result.checkpoint.path)]

    async def _poll_workers(self) -> Any:
        pause = ENDING_SECONDS if self._ending else LIVENESS_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), pause)
        self._news.clear()
        self._latest_poll_time = float("-inf")
        status = await super()._poll_workers()
        if self._is_training_succeeded(status):
            self._kept.succeeded()
        return status

    async def reported_checkpoints(self, *args: Any) -> Any:
        """`get_all_reported_checkpoints`, called from another event loop."""
        call = asyncio.run_coroutine_threadsafe(self.get_all_reported_checkpoints(*args), self._loop)
        return await asyncio.wrap_future(call)


class ReportedCheckpoints(ReportCallback):  # type: ignore[misc]
    """Calls `saved(sequence, checkpoint)` for each report that the controller has from all ranks with a checkpoint."""

    def __init__(self, saved: Callable[[int, Any], None]) -> None:
        self._saved = saved
        self._sequence = 0

    def after_report(self, training_report: Any, metrics: Any) -> None:  # noqa: ARG002
        sequence, self._sequence = self._sequence, self._sequence + 1
        if training_report.checkpoint is not None:
            self._saved(sequence, training_report.checkpoint)


class InProcessFit:
    """What makes a trainer's `fit()` run its controller here, over what is kept."""

    kept: WarmGroup
    reported: Callable[[int, Any], None]

    def _create_default_callbacks(self) -> list[Any]:
        rays: list[Any] = super()._create_default_callbacks()  # type: ignore[misc]
        return [*(c for c in rays if not isinstance(c, OMITTED_CALLBACKS)), ReportedCheckpoints(self.reported)]

    def _initialize_and_run_controller(self, *, scaling_policy: Any, **arguments: Any) -> Any:
        asked_once = type("KeptPolicy", (WarmResourceRequest, type(scaling_policy)), {"kept": self.kept})
        return self.kept.run({**arguments, "scaling_policy": asked_once(scaling_policy.scaling_config)})


def in_process_trainer(trainer: type[Any], kept: WarmGroup, saved: Callable[[int, Any], None]) -> type[Any]:
    """The trainer's class with such a `fit()`; `saved` as in `ReportedCheckpoints`."""
    return type(f"Hosted{trainer.__name__}", (InProcessFit, trainer), {"kept": kept, "reported": staticmethod(saved)})


class FitWithoutCleaner:
    """What makes a trainer's own `fit()` start no cleaner of placement groups.

    It outlives a slot that is killed, and without Ray's dashboard it never finds out and stays for good. The agent
    removes the placement group of a slot that died.
    """

    def _create_default_callbacks(self) -> list[Any]:
        rays: list[Any] = super()._create_default_callbacks()  # type: ignore[misc]
        return [callback for callback in rays if not isinstance(callback, PlacementGroupCleanerCallback)]


def without_placement_group_cleaner(trainer: type[Any]) -> type[Any]:
    """The trainer's class with such a `fit()`."""
    return type(f"Uncleaned{trainer.__name__}", (FitWithoutCleaner, trainer), {})
