"""What is kept of an agent's nodes for a large worker group, while smaller ones come and go."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.fits_beside import fits_beside
from service.domain.group_fit import could_fit, fits_now
from tests.conftest import examples
from trainer.wire import Node, Scaling, Validation, WorkerGroup, reserve

STRATEGIES = ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
ZONES = ["a", "b"]
LONGEST_LIFE = 30
"""In ends of other trials: every trial ends at some time."""


def group(workers: int, strategy: str = "PACK", zone: str | None = None, **worker: float) -> WorkerGroup:
    selector = {"zone": zone} if zone else None
    scaling = {"num_workers": workers, "placement_strategy": strategy, "label_selector": selector}
    return Scaling.model_validate({**scaling, "resources_per_worker": worker}).group


def node(total: float, free: float, zone: str = "a") -> Node:
    return Node(total={"CPU": total}, free={"CPU": free}, labels={"zone": zone})


@dataclass
class Simulation:
    """Nodes on which small trials run, each on a node that the test chooses, as bad as it may be."""

    nodes: list[Node]
    running: list[tuple[int, dict[str, float], int]] = field(default_factory=list)
    ends: int = 0

    def _change(self, index: int, amounts: dict[str, float], sign: int) -> None:
        one = self.nodes[index]
        free = {name: amount + sign * amounts.get(name, 0.0) for name, amount in one.free.items()}
        self.nodes[index] = replace_free(one, free)

    def start(self, small: WorkerGroup, data: st.DataObject) -> None:
        """All its workers on one of the nodes with room for them, if there is one; otherwise it waits."""
        amounts = {name: amount * small.min_workers for name, amount in small.worker.items()}
        possible = [
            index for index, one in enumerate(self.nodes) if fits_now(replace(small, strategy="STRICT_PACK"), [one])
        ]
        if possible:
            index = data.draw(st.sampled_from(possible))
            self._change(index, amounts, -1)
            self.running.append((index, amounts, self.ends))

    def end_one(self, data: st.DataObject) -> None:
        """Any one, or the oldest that has lived long enough."""
        oldest = self.running[0]
        is_over = self.ends - oldest[2] >= LONGEST_LIFE
        chosen = 0 if is_over else data.draw(st.integers(0, len(self.running) - 1))
        index, amounts, _ = self.running.pop(chosen)
        self._change(index, amounts, 1)
        self.ends += 1


def replace_free(one: Node, free: dict[str, float]) -> Node:
    return Node(total=one.total, free={name: max(0.0, amount) for name, amount in free.items()}, labels=one.labels)


CLUSTERS = st.lists(
    st.builds(
        lambda cpus, gpus, zone: Node(
            total=(size := {"CPU": float(cpus), "GPU": float(gpus)}), free=size, labels={"zone": zone}
        ),
        st.integers(1, 8),
        st.integers(0, 4),
        st.sampled_from(ZONES),
    ),
    min_size=1,
    max_size=4,
)
WORKERS = st.sampled_from(
    [{"CPU": 1.0}, {"CPU": 2.0}, {"CPU": 3.0}, {"GPU": 1.0}, {"GPU": 2.0, "CPU": 1.0}, {"GPU": 0.5}]
)
SMALL = st.builds(lambda size, worker: group(size, **worker), st.integers(1, 2), WORKERS)
GANGS = st.builds(
    lambda size, strategy, zone, worker: group(size, strategy, zone, **worker),
    st.integers(1, 10),
    st.sampled_from(STRATEGIES),
    st.sampled_from([None, *ZONES]),
    WORKERS,
)


@examples(200)
@given(CLUSTERS, GANGS, st.lists(SMALL, min_size=1, max_size=3), st.data())
def test_a_gang_that_fits_an_empty_cluster_starts_although_smaller_trials_always_wait(
    nodes: list[Node], gang: WorkerGroup, small: list[WorkerGroup], data: st.DataObject
) -> None:
    cluster = Simulation(list(nodes))
    for _ in range(40):
        cluster.start(data.draw(st.sampled_from(small)), data)
    if not could_fit(gang, nodes):
        assert reserve(gang, cluster.nodes) is None
        return
    missing = float("inf")
    while not fits_now(gang, cluster.nodes):
        assert cluster.ends < 1000, "the gang starves"
        reservation = reserve(gang, cluster.nodes)
        assert reservation
        assert 0 < reservation.missing <= missing
        missing = reservation.missing
        for one in small:
            if fits_now(one, cluster.nodes) and fits_beside(one, cluster.nodes, reservation):
                cluster.start(one, data)
                reservation = reserve(gang, cluster.nodes)
                assert reservation
                assert reservation.missing <= missing
        cluster.end_one(data)


def test_workers_are_planned_where_the_least_is_missing() -> None:
    nodes = [node(8, 2), node(8, 5), node(8, 0)]
    packed = reserve(group(8, "STRICT_PACK", CPU=1), nodes)
    assert packed
    assert packed.reserved == [{}, {"CPU": 8}, {}]
    spread = reserve(group(2, "STRICT_SPREAD", CPU=4), nodes)
    assert spread
    assert (spread.reserved, spread.missing) == ([{"CPU": 4}, {"CPU": 4}, {}], 0.5)


def test_a_trial_starts_beside_what_is_kept_only_if_it_cannot_land_on_it() -> None:
    gang, small = group(8, "STRICT_PACK", CPU=1), group(1, CPU=1)
    nodes = [node(8, 0), node(8, 5)]
    reservation = reserve(gang, nodes)
    assert reservation
    assert not fits_beside(small, nodes, reservation)
    full = [node(8, 2, "b"), node(8, 5)]
    reservation = reserve(gang, full)
    assert reservation
    assert not fits_beside(small, full, reservation)
    assert fits_beside(group(1, zone="b", CPU=1), full, reservation)


def test_room_is_kept_for_a_validation() -> None:
    validation = Validation.model_validate({"entrypoint": "a:b", "ray_remote_kwargs": {"num_cpus": 2}})
    gang = WorkerGroup.of(Scaling(num_workers=4).model_dump(), validation.model_dump())
    reservation = reserve(gang, [node(4, 4), node(4, 1)])
    assert reservation
    assert sum(one.get("CPU", 0) for one in reservation.reserved) == 6


@pytest.mark.parametrize("free", [0.0, 3.0])
def test_everything_is_kept_if_selectors_hide_the_plan(free: float) -> None:
    """The workers' selectors overlap, so that placing one after the other fails."""
    selectors = [{"x": "in(1, 2)"}, {"x": "in(1, 3)"}, {"x": "in(2, 3)"}, {"x": "1"}]
    gang = Scaling.model_validate({"num_workers": 4, "label_selector": selectors}).group
    sizes = {"1": 2, "2": 1, "3": 1}
    nodes = [
        Node(total={"CPU": float(cpus)}, free={"CPU": min(free, cpus)}, labels={"x": x}) for x, cpus in sizes.items()
    ]
    assert could_fit(gang, nodes)
    reservation = reserve(gang, nodes)
    assert reservation
    assert sum(one["CPU"] for one in reservation.reserved if one) == 4
