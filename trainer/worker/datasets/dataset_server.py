"""The processes that make the datasets of trials and hand out their shares.

`DatasetServer` and `DatasetStore` are Ray actors whose calls come in threads. They travel by value, as everything that
runs on the cluster.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray.data import ExecutionOptions, ExecutionResources
from ray.exceptions import RayActorError
from ray.train import DataConfig

from trainer.ray_train.actor_call_retries import at_least_once
from trainer.ray_train.datasets.data_task_resources import plan_here
from trainer.ray_train.processes.forked_children import detach_children_from_ray
from trainer.resources import Bundle
from trainer.worker.datasets.data_task_room import await_room
from trainer.worker.datasets.dataset_making import Answer, DatasetsJob, make_datasets, no_dataset, value_of
from trainer.worker.failures import (
    CANNOT_START,
    LOST,
    DatasetNotMade,
    Failure,
    headline,
    kind_of,
)
from trainer.worker.user_code.user_frames import user_traceback
from trainer.worker.user_process import UserProcess, this_process

STORE_JOIN_SECONDS = 5.0
"""How long a store without slots waits for another slot of its experiment."""

STORE_ATTEMPTS = 3
CHECK_SECONDS = 1.0

FIELDS = {"CPU": "cpu", "GPU": "gpu"}
"""The fields of Ray Data's `ExecutionResources` for resources of Ray."""


@dataclass(frozen=True)
class DataPlan:
    """How datasets get to the workers: `trainer.wire.DataConfig` as JSON. `cpus`: what the workers reserve together."""

    config: Mapping[str, Any]
    cpus: float

    @property
    def per_task(self) -> dict[str, float]:
        """What each task of Ray Data reserves."""
        resources: dict[str, float] = self.config["preprocess_on"]["resources"]
        return resources

    @property
    def task(self) -> Bundle:
        """What each task reserves, and the labels of the nodes where it may run."""
        return Bundle(self.per_task, self.config["preprocess_on"]["label_selector"])

    def splits(self, name: str, job: DatasetsJob) -> bool:
        """Whether the dataset is divided among the workers."""
        chosen = self.config["split"]
        if chosen is None:
            return job.function is not None or bool(job.datasets[name]["split"])
        return chosen == "all" or name in chosen

    def applied_to(self, dataset: Any) -> Any:
        """The dataset, as it is to be executed in this process."""
        dataset.context.execution_options = self.execution_options()
        return dataset

    def execution_options(self) -> ExecutionOptions:
        given = self.config["execution"]["resource_limits"]
        limits = {FIELDS.get(name, name): value for name, value in given.items() if value is not None}
        if not self.per_task.get("CPU"):
            limits.setdefault("cpu", max(2.0, self.cpus))
        return ExecutionOptions(
            resource_limits=ExecutionResources.for_limits(**limits),
            preserve_order=self.config["execution"]["preserve_order"],
            verbose_progress=False,
            label_selector=dict(self.task.selector) or None,
        )


class DatasetMaker:
    """Makes datasets once, in any thread. With `keeps_failure`, a later call fails alike; without, it tries again."""

    def __init__(self, *, keeps_failure: bool) -> None:
        self._keeps_failure = keeps_failure
        self._made: dict[str, Any] | None = None
        self._failure: Failure | None = None
        self._lock = threading.Lock()

    def datasets(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The datasets that `make`, or the `make` of an earlier call, has returned. Raises DatasetNotMade."""
        with self._lock:
            if self._failure is not None:
                raise DatasetNotMade(self._failure)
            if self._made is None:
                self._made = self._try_to_make(make)
            return self._made

    def _try_to_make(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return make()
        except DatasetNotMade as error:
            failure = error.failure
        except Exception as error:  # noqa: BLE001 - whatever Ray Data and Ray raise
            message = f"the datasets could not be made: {headline(error)}"
            failure = Failure(kind_of(error, is_importing=False), message, user_traceback(error))
        if self._keeps_failure:
            self._failure = failure
        raise DatasetNotMade(failure)


class DatasetStore:
    """Keeps the materialized datasets of an experiment in Ray's object store, for all slots of a cluster.

    Ray frees them with this process, which ends itself when no slot that has joined it lives any more.
    """

    def __init__(self, plan: DataPlan) -> None:
        detach_children_from_ray()
        plan_here(plan.per_task)
        self._plan = plan
        self._maker = DatasetMaker(keeps_failure=False)
        self._slots: dict[str, Any] = {}
        self._slots_lock = threading.Lock()
        threading.Thread(target=self._end_with_slots, name="paceline-store", daemon=True).start()

    @at_least_once
    def join(self, job: DatasetsJob, secrets: Mapping[str, str]) -> dict[str, Any]:
        """Stay as long as the job's slot lives, which also keeps the job's package. Returns a `UserProcess`."""
        os.environ.update(secrets)
        if job.run_by not in self._slots:
            until_closed = job.slot.until_closed.remote()
            with self._slots_lock:
                self._slots = {**self._slots, job.run_by: until_closed}
        return asdict(this_process(records_exit=False))

    @at_least_once
    def datasets(self, job: DatasetsJob, secrets: Mapping[str, str]) -> Answer:
        """What a function prints goes to the log of this job's run if this call makes them."""
        return answer_of(lambda: self._maker.datasets(lambda: self._materialize(job, secrets)))

    def _materialize(self, job: DatasetsJob, secrets: Mapping[str, str]) -> dict[str, Any]:
        made = make_datasets(job, job.unpack(), secrets, materialized=True)
        return {name: self._plan.applied_to(dataset).materialize() for name, dataset in made.items()}

    def _end_with_slots(self) -> None:
        left_at = time.monotonic()
        while time.monotonic() < left_at + STORE_JOIN_SECONDS:
            if slots := self._slots:
                ended = ray.wait(list(slots.values()), num_returns=1, timeout=CHECK_SECONDS)[0]
                with self._slots_lock:
                    self._slots = {name: slot for name, slot in self._slots.items() if slot not in ended}
                left_at = time.monotonic()
            else:
                time.sleep(CHECK_SECONDS)
        os._exit(0)


class DatasetServer:
    """Makes the datasets of one attempt when a worker first asks for one, and splits them among the workers.

    `nodes`: those of the workers, by rank.
    """

    def __init__(self, job: DatasetsJob, plan: DataPlan, nodes: list[str]) -> None:
        detach_children_from_ray()
        plan_here(plan.per_task)
        self._job, self._plan, self._nodes = job, plan, nodes
        self._secrets: dict[str, str] = ray.get(job.slot.secrets.remote(job.run)) if job.has_secrets else {}
        self._maker = DatasetMaker(keeps_failure=True)
        self._shards: dict[tuple[str, int], Any] = {}
        self._lock = threading.Lock()
        os.environ.update(self._secrets)

    @at_least_once
    def process(self) -> dict[str, Any]:
        """As a `UserProcess`."""
        return asdict(this_process())

    @at_least_once
    def shard(self, name: str | None, rank: int) -> Answer:
        """The iterator over a worker's share. All workers have to read a dataset that is split."""
        return answer_of(lambda: self._shard(name, rank))

    def _shard(self, name: str | None, rank: int) -> Any:
        datasets = self._maker.datasets(self._make)
        if name is None and len(datasets) == 1:
            (name,) = datasets
        if name is None:
            known = ", ".join(sorted(datasets))
            message = f"get_dataset_shard() needs a name, because there are several datasets: {known}"
            raise DatasetNotMade(Failure(CANNOT_START, message))
        if name not in datasets:
            raise DatasetNotMade(no_dataset(name, list(datasets)))
        with self._lock:
            if (name, rank) not in self._shards:
                self._shards |= self._split(name, datasets[name], rank)
        return self._shards[name, rank]

    def _split(self, name: str, dataset: Any, rank: int) -> dict[tuple[str, int], Any]:
        """Each share gets a process that runs the dataset; a dataset that is split has one for all of its shares."""
        await_room(self._plan.task)
        ranks = range(len(self._nodes)) if self._plan.splits(name, self._job) else [rank]
        options, locality = self._plan.execution_options(), self._plan.config["enable_shard_locality"]
        config = DataConfig(execution_options=options, enable_shard_locality=locality)
        nodes = [self._nodes[one] for one in ranks]
        iterators = config.configure({name: dataset}, len(ranks), None, nodes)
        return {(name, one): iterators[index][name] for index, one in enumerate(ranks)}

    def _make(self) -> dict[str, Any]:
        await_room(self._plan.task)  # first: a dataset function may run tasks, too, and so do materialized datasets
        made = make_datasets(self._job, self._job.unpack(), self._secrets, materialized=False)
        if self._job.has_materialized():
            made |= self._materialized()
        for name, dataset in made.items():
            dataset.set_name(name)
        return made

    def _materialized(self) -> dict[str, Any]:
        for _ in range(STORE_ATTEMPTS):
            found_by = {"name": self._job.store, "get_if_exists": True, "lifetime": "detached"}
            store = ray.remote(DatasetStore).options(num_cpus=0, max_concurrency=1000, **found_by).remote(self._plan)
            with contextlib.suppress(RayActorError):  # it was just about to end
                process = UserProcess(**ray.get(store.join.remote(self._job, self._secrets)))
                with naming_crashes(process, self._job):
                    found: dict[str, Any] = value_of(ray.get(store.datasets.remote(self._job, self._secrets)))
                return found
        raise DatasetNotMade(Failure(LOST, "the store of the materialized datasets has died; its node may lack memory"))


class DatasetServerHandle:
    """The server, for the workers and for the process that has started it, in which this is made."""

    def __init__(self, actor: Any, job: DatasetsJob) -> None:
        self._actor, self._job = actor, job
        self._process = actor.process.remote()  # now: a worker might ask a server that another one has just crashed

    def shard(self, name: str | None, rank: int) -> Answer:
        """As the server's. Raises Ray's error if the server was killed."""
        process = UserProcess(**ray.get(self._process))

        def shard() -> Any:
            with naming_crashes(process, self._job):
                return value_of(ray.get(self._actor.shard.remote(name, rank)))

        return answer_of(shard)

    def end(self) -> None:
        """End the server. Ray then ends what it owns: the processes that split the datasets, and their tasks."""
        ray.kill(self._actor)


@contextlib.contextmanager
def naming_crashes(process: UserProcess, job: DatasetsJob) -> Iterator[None]:
    """Raise DatasetNotMade in place of Ray's error if the dataset function has crashed this process meanwhile."""
    try:
        yield
    except RayActorError as error:
        if (failure := process.own_failure(f"the process of the dataset function {job.function}")) is not None:
            raise DatasetNotMade(failure) from error
        raise


def answer_of(call: Callable[[], Any]) -> Answer:
    try:
        return call(), None
    except DatasetNotMade as error:
        return None, asdict(error.failure)
