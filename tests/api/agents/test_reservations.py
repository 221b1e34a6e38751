"""Resources that are kept for a large group: it starts although smaller trials always find room before it."""

import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from service.operations.attempts.scheduling.experiment_line import contenders
from tests.conftest import Api, Held

pytestmark = pytest.mark.slow

MANY = {"max_trials": 1000, "parallelism": 8}


def trainer(workers: int, **scaling: Any) -> dict[str, Any]:
    return {"kind": "torch", "entrypoint": "a_module:train_fn", "scaling": {"num_workers": workers, **scaling}}


def resources_of(held: Held) -> dict[str, float]:
    scaling = held.assignment["trainer"]["scaling"]
    worker = scaling["resources_per_worker"] or {"GPU" if scaling["use_gpu"] else "CPU": 1}
    return {name: amount * scaling["num_workers"] for name, amount in worker.items()}


@dataclass
class Cluster:
    """An agent with one node. It says what is free as an agent does; `foreign` is used by others.

    It may have `other_nodes`, with the trials in `elsewhere`.
    What trials in `ending` hold is not free yet, although they have ended: their slots are not idle yet.
    """

    service: Api
    agent: str = "here"
    total: dict[str, float] = field(default_factory=lambda: {"CPU": 8.0})
    foreign: dict[str, float] = field(default_factory=dict)
    running: list[Held] = field(default_factory=list)
    ending: list[Held] = field(default_factory=list)
    other_nodes: list[dict[str, Any]] = field(default_factory=list)
    elsewhere: list[Held] = field(default_factory=list)

    def claim(self) -> str | None:
        """The experiment of the trial that starts; None if none does."""
        free = {name: amount - self.foreign.get(name, 0) for name, amount in self.total.items()}
        held = [*self.running, *self.ending]
        for one in held:
            for name, amount in resources_of(one).items():
                free[name] -= amount
        nodes = [{"total": self.total, "free": free}, *self.other_nodes]
        running = [one.trial for one in [*held, *self.elsewhere]]
        message = {"request_id": uuid.uuid4().hex, "nodes": nodes, "running": running}
        response = self.service.http.post(f"/v1/agents/{self.agent}/claim", json=message)
        assert response.status_code in {200, 204}, response.text
        if response.status_code == 204:
            return None
        self.running.append(Held(self.service, response.json()))
        return self.experiments[-1]

    def claim_all(self) -> list[str]:
        return list(iter(self.claim, None))

    @property
    def experiments(self) -> list[str]:
        return [str(one.assignment["experiment"]) for one in self.running]

    def end(self, experiment: str) -> str | None:
        """A trial of the experiment ends, and its slot asks for the next: the experiment of that, if it gets one."""
        held = self.running.pop(self.experiments.index(experiment))
        held.report(accuracy=1)
        following = held.finish(next=True)["next"]
        if following is None:
            return None
        self.running.append(Held(self.service, following))
        return str(following["experiment"])


@pytest.fixture
def cluster(service: Api) -> Cluster:
    return Cluster(service)


@pytest.fixture
def without_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment is due as soon as it waits."""
    monkeypatch.setattr("service.operations.attempts.scheduling.experiment_line.TURN", timedelta(0))


def create(cluster: Cluster, workers: int, **changes: Any) -> str:
    spec = {"trainer": trainer(workers), "limits": MANY} | changes
    return str(cluster.service.create(**spec)["name"])


def full_of_small_trials(cluster: Cluster, **changes: Any) -> str:
    small = create(cluster, 1, **changes)
    assert cluster.claim_all() == [small] * 8
    return small


def waiting_for(cluster: Cluster, experiment: str) -> Any:
    return cluster.service.get(f"/v1/experiments/{experiment}")["waiting_for"]


def test_a_gang_of_a_higher_priority_starts_as_smaller_trials_end(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster)
    gang = create(cluster, 6, priority=100, limits={"parallelism": 1})
    for _ in range(5):
        assert cluster.end(small) is None
        assert cluster.claim() is None
    assert cluster.end(small) is None
    assert cluster.claim() == gang
    assert cluster.end(gang) == gang
    assert cluster.end(small) == small


def test_what_the_gang_does_not_need_is_not_kept(cluster: Cluster) -> None:
    cluster.total = {"CPU": 8.0, "GPU": 2.0}
    gpus = create(cluster, 1, trainer=trainer(1, use_gpu=True))
    assert cluster.claim_all() == [gpus, gpus]
    gang = create(cluster, 2, trainer=trainer(2, use_gpu=True), priority=100)
    assert cluster.claim() is None
    small = create(cluster, 1)
    assert cluster.claim_all() == [small] * 8
    cluster.end(gpus)
    cluster.end(gpus)
    assert cluster.claim() == gang


def test_nothing_is_kept_for_a_gang_that_cannot_start_there(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster)
    create(cluster, 9, priority=100)
    create(cluster, 6, priority=100, trainer=trainer(6, label_selector={"zone": "elsewhere"}))
    create(cluster, 6, priority=100, trainer=trainer(6, accelerator_type="A100"))
    paused = create(cluster, 6, priority=100)
    cluster.service.post(f"/v1/experiments/{paused}/pause")
    running = create(cluster, 6, priority=100, limits={"parallelism": 1})
    assert Cluster(cluster.service, "another").claim() == running
    assert cluster.end(small) == small
    cluster.running.pop().finish()
    assert cluster.claim() == small


def test_nothing_is_kept_for_a_gang_that_waits_for_what_others_use_of_the_cluster(cluster: Cluster) -> None:
    cluster.total, cluster.foreign = {"CPU": 11.0}, {"CPU": 3.0}
    small = full_of_small_trials(cluster)
    create(cluster, 9, priority=100)
    assert cluster.end(small) is None
    assert cluster.claim() == small


def test_nothing_is_kept_for_a_gang_that_needs_a_withheld_node(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster, limits=MANY | {"parallelism": 16})
    cluster.elsewhere, cluster.running = cluster.running, []
    other = {"total": {"CPU": 8.0}, "free": {}}
    cluster.other_nodes = [other | {"withheld": "node b: no room"}]
    create(cluster, 16, priority=100)
    assert cluster.claim() == small
    cluster.other_nodes = [other]
    assert cluster.claim() is None, "what the trials there free is for the gang"


def test_resources_stay_kept_while_the_slot_of_an_ended_trial_is_not_idle_yet(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster)
    gang = create(cluster, 8, priority=100)
    for _ in range(7):
        cluster.end(small)
    cluster.ending = list(cluster.running)
    assert cluster.end(small) is None
    assert cluster.claim() is None
    cluster.ending = []
    assert cluster.claim() == gang


@pytest.mark.usefixtures("without_turns")
def test_a_gang_that_did_not_get_its_resources_is_next_in_line_again(cluster: Cluster) -> None:
    gang = create(cluster, 4, limits={"parallelism": 1})
    assert cluster.claim() == gang
    small = create(cluster, 1)
    cluster.foreign = {"CPU": 1.0}
    assert cluster.claim_all() == [small] * 3
    error = {"kind": "preempted", "message": "the resources did not become free in time", "began": False}
    answer = cluster.running.pop(cluster.experiments.index(gang)).finish("failed", error=error, next=True)
    assert (answer["status"], answer["next"]) == ("queued", None)
    cluster.foreign = {"CPU": 5.0}
    assert cluster.claim() is None
    assert waiting_for(cluster, gang) is not None
    cluster.foreign = {"CPU": 1.0}
    assert cluster.claim() == gang


def test_an_elastic_group_that_has_not_told_its_size_may_free_its_largest(cluster: Cluster) -> None:
    elastic = create(cluster, 1, trainer=trainer(1) | {"scaling": {"num_workers": {"min": 1, "max": 8}}})
    assert cluster.claim() == elastic
    small = create(cluster, 1)
    cluster.foreign = {"CPU": 6.0}  # what the workers above its smallest number hold, but for one
    create(cluster, 8, priority=100)
    assert cluster.claim() is None, f"kept for the gang, not for {small}"


def test_only_one_cluster_keeps_resources_for_a_gang(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster, limits=MANY | {"parallelism": 16})
    another = Cluster(cluster.service, "another")
    assert another.claim_all() == [small] * 8
    gang = create(cluster, 6, priority=100)
    another.end(small)
    cluster.end(small)
    cluster.end(small)
    assert cluster.claim() is None
    assert another.claim() == small
    assert (
        waiting_for(cluster, gang)
        == "6 workers x 1 CPU; 2 CPU free now; what becomes free on agent here is reserved for it"
    )


def test_a_gang_of_the_same_priority_waits_for_its_turn(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    small = full_of_small_trials(cluster)
    gang = create(cluster, 8)
    assert cluster.end(small) == small
    cluster.running.pop().finish()
    assert cluster.claim() == small
    monkeypatch.setattr("service.operations.attempts.scheduling.experiment_line.TURN", timedelta(0))
    for _ in range(8):
        assert cluster.end(small) is None
        assert cluster.claim() in {None, gang}
    assert cluster.experiments == [gang]


@pytest.mark.usefixtures("without_turns")
def test_experiments_that_cannot_run_side_by_side_take_turns(cluster: Cluster) -> None:
    names = {workers: create(cluster, workers) for workers in (1, 8)}
    started = []
    for _ in range(4):
        assert cluster.claim() == names[1]
        started += cluster.claim_all()
        cluster.end(names[1])
        assert cluster.claim() == names[8]
        assert cluster.end(names[8]) is None
    assert not started


@pytest.mark.usefixtures("without_turns")
def test_of_two_experiments_of_one_size_the_older_goes_on_with_its_warm_slot(cluster: Cluster) -> None:
    older = create(cluster, 8)
    assert cluster.claim() == older
    create(cluster, 8)
    assert [cluster.end(older) for _ in range(3)] == [older] * 3


def test_experiments_of_one_priority_share_resources_rather_than_numbers_of_trials(cluster: Cluster) -> None:
    cluster.total = {"GPU": 16.0}
    large, small = (create(cluster, size, trainer=trainer(size, use_gpu=True)) for size in (4, 1))
    started = cluster.claim_all()
    assert (started.count(large), started.count(small)) == (2, 8)


def test_of_different_resources_the_largest_part_counts(cluster: Cluster) -> None:
    cluster.total = {"CPU": 64.0, "GPU": 8.0}
    gpus = create(cluster, 1, trainer=trainer(1, use_gpu=True, resources_per_worker={"CPU": 4, "GPU": 1}))
    cpus = create(cluster, 1, limits={"max_trials": 1000, "parallelism": 100})
    started = [cluster.claim() for _ in range(18)]
    assert (started.count(gpus), started.count(cpus)) == (2, 16)


def test_an_experiment_says_that_what_is_free_is_kept_for_another_one(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster)
    gang = create(cluster, 6, priority=100)
    cluster.end(small)
    other = create(cluster, 1)
    assert cluster.claim() is None
    assert (
        waiting_for(cluster, gang)
        == "6 workers x 1 CPU; 1 CPU free now; what becomes free on agent here is reserved for it"
    )
    assert waiting_for(cluster, other) == (
        f"1 worker x 1 CPU; what is free is reserved for experiment {gang}, which is ahead in the line"
    )


def test_nothing_is_kept_for_an_experiment_that_waits_for_its_own_trials(cluster: Cluster) -> None:
    large, small = create(cluster, 3, priority=10), create(cluster, 1)
    assert cluster.claim_all() == [large, large, small, small]
    assert cluster.end(large) == large
    cluster.end(small)
    assert cluster.claim() == small


def test_nothing_is_kept_for_an_experiment_that_waits_for_one_ahead_of_it(cluster: Cluster) -> None:
    first = create(cluster, 1, priority=20, limits=MANY | {"parallelism": 6})
    assert cluster.claim_all() == [first] * 6
    create(cluster, 4, priority=10)
    small = create(cluster, 1)
    assert cluster.claim_all() == [small, small]
    assert cluster.end(first) == first


@pytest.mark.usefixtures("without_turns")
def test_an_experiment_of_the_same_priority_that_runs_trials_lets_none_wait(cluster: Cluster) -> None:
    cluster.total = {"CPU": 11.0}
    large = create(cluster, 4, limits=MANY | {"parallelism": 2})
    assert cluster.claim() == large
    cluster.total = {"CPU": 5.0}
    small = create(cluster, 1)
    assert cluster.claim() == small
    cluster.total = {"CPU": 11.0}
    cluster.claim_all()
    assert sum(sum(resources_of(one).values()) for one in cluster.running) == 11, "none is idle"


def test_experiments_that_fit_on_no_node_do_not_keep_the_next_one_from_its_turn(cluster: Cluster) -> None:
    small = full_of_small_trials(cluster)
    for _ in range(6):
        create(cluster, 100, priority=50)
    gang = create(cluster, 8, priority=10)
    for _ in range(7):
        assert cluster.end(small) is None
        assert cluster.claim() is None
    assert cluster.end(small) is None
    assert cluster.claim() == gang


@pytest.mark.usefixtures("without_turns")
@pytest.mark.parametrize("place", ["oldest", "between"])
def test_an_experiment_that_fits_on_no_node_does_not_end_the_turns(cluster: Cluster, place: str) -> None:
    if place == "oldest":
        create(cluster, 100)
    small = create(cluster, 1)
    if place == "between":
        create(cluster, 100)
    gang = create(cluster, 8)
    for _ in range(3):
        assert cluster.claim() == small
        cluster.end(small)
        assert cluster.claim() == gang
        cluster.end(gang)


def test_no_cluster_drains_for_a_gang_whose_nodes_others_use(cluster: Cluster) -> None:
    create(cluster, 8, priority=100, trainer=trainer(8, placement_strategy="STRICT_PACK"))
    small = create(cluster, 1)
    node = {"total": {"CPU": 8.0}, "free": {"CPU": 6.0}}
    message = {"request_id": uuid.uuid4().hex, "nodes": [node, node], "running": []}
    answer = cluster.service.http.post("/v1/agents/here/claim", json=message)
    assert answer.json()["experiment"] == small


def test_a_trial_that_ends_during_a_claim_does_not_count_twice(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = create(cluster, 1, limits={"max_trials": 1000, "parallelism": 2})
    assert cluster.claim_all() == [small] * 2
    cluster.foreign = {"CPU": 3.0}
    create(cluster, 6, priority=100, limits={"parallelism": 1})  # it will have 5 CPUs
    held, read = cluster.running[-1], contenders

    def trial_ends(*given: Any) -> Any:
        monkeypatch.undo()
        held.finish()
        return read(*given)

    monkeypatch.setattr("service.operations.attempts.scheduling.claim.contenders", trial_ends)
    assert cluster.claim() == small
