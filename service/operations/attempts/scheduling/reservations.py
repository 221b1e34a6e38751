"""Keeps resources of agents' clusters for the experiments that are next in line and do not fit yet.

Nothing of this is stored: every claim computes it anew from the line, from what the agents have told of their nodes,
and from the trials that run on them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from sqlalchemy.orm import Session

from service.domain.fits_beside import Resources, fits_beside, needs_of
from service.domain.group_fit import fits_now
from service.operations.attempts.scheduling.experiment_line import Contender, Line, held_by
from service.runtime.caches.experiment_caches import trainers_of
from service.store.agents import nodes_of
from service.store.attempts import RunningGroups, ended_groups, running_groups
from trainer.wire import Node, Reservation, WorkerGroup, reserve

MAX_WAITING = 5
"""For so many experiments at most resources are reserved at a time: planning a large group takes milliseconds."""

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Held:
    """What trials of one experiment hold on a cluster, at most: an elastic group that starts has not told its size.

    `priority` is that of the experiment, whose next trials get what these free; None if it starts no more of them.
    """

    experiment_id: str
    priority: int | None
    resources: Resources


@dataclass(frozen=True)
class Cluster:
    """An agent's nodes, and what the trials hold that it runs; None if that is not known."""

    nodes: Sequence[Node]
    held: Sequence[Held] | None

    def may_free(self, contender: Contender) -> bool:
        """Whether the contender's group has room once the trials have ended that leave it what they hold.

        Its own do not, nor do those of a higher priority. Others may use the cluster, too, and nothing is to wait for
        them. An estimate: on which nodes trials run is not known.
        """
        if self.held is None:
            return True
        freed = self._freed_for(contender)
        needed = needs_of(contender.group)
        return fits_now(contender.group, [self._emptied(node, freed) for node in self.nodes]) and all(
            sum(node.free.get(name, 0.0) for node in self.nodes) + freed[name] >= amount - TOLERANCE
            for name, amount in needed.items()
        )

    def _freed_for(self, contender: Contender) -> Counter[str]:
        freed = Counter[str]()
        for one in self.held or ():
            is_own = one.experiment_id == contender.experiment.id
            if one.priority is None or (not is_own and one.priority <= contender.rank.priority):
                freed.update(one.resources)
        return freed

    @staticmethod
    def _emptied(node: Node, freed: Mapping[str, float]) -> Node:
        """The node if all of what is freed were freed there."""
        most = {name: min(total, node.free.get(name, 0.0) + freed.get(name, 0.0)) for name, total in node.total.items()}
        return node.model_copy(update={"free": most})


@dataclass(frozen=True)
class ClusterReservation:
    """What is reserved on one agent's cluster, and for which experiment."""

    agent: str
    contender: Contender
    reservation: Reservation


class Reservations:
    """What is reserved for experiments whose trials do not fit yet. `pass_over` names these in the order of the line.

    `clusters` is called only if there is something to keep.
    """

    def __init__(self, clusters: Callable[[], Mapping[str, Cluster]]) -> None:
        self._load = clusters
        self._waiting: list[Contender] = []
        self._reserved: dict[str, ClusterReservation | None] = {}

    def pass_over(self, contender: Contender) -> None:
        """Its trial fits on none of what is free."""
        if contender.may_wait:
            self._waiting.append(contender)

    def blocking(self, agent: str, contender: Contender) -> ClusterReservation | None:
        """What keeps the agent's cluster from starting a trial that would fit now; None if it may start."""
        reserved = next((one for one in self._reserved_ahead_of(contender) if one.agent == agent), None)
        if reserved is None or fits_beside(contender.group, self._clusters[agent].nodes, reserved.reservation):
            return None
        return reserved

    def fitting(self, group: WorkerGroup) -> list[str]:
        """The agents with room for the group, reserved or not."""
        return [agent for agent, cluster in self._clusters.items() if fits_now(group, cluster.nodes)]

    def reserved_first_for(self, contender: Contender) -> ClusterReservation | None:
        """What `reserved_for` returns; None if an experiment ahead has a reservation on that cluster."""
        others = [one for one in self._reserved_ahead_of(contender) if one.contender is not contender]
        reserved = self.reserved_for(contender) if len(others) < MAX_WAITING else None
        return reserved if reserved is not None and all(one.agent != reserved.agent for one in others) else None

    def _reserved_ahead_of(self, contender: Contender) -> Iterator[ClusterReservation]:
        ahead = (self.reserved_for(one) for one in self._waiting if one.comes_before_all_of(contender))
        return islice((one for one in ahead if one is not None), MAX_WAITING)

    def reserved_for(self, contender: Contender) -> ClusterReservation | None:
        """Return what is reserved for it: on one cluster, where the least is missing. None while another has room."""
        key = contender.experiment.id
        if key not in self._reserved:
            self._reserved[key] = self._plan(contender)
        return self._reserved[key]

    def _plan(self, contender: Contender) -> ClusterReservation | None:
        group, plans = contender.group, []
        for agent, cluster in self._clusters.items():
            if fits_now(group, cluster.nodes):
                return None
            reservation = reserve(group, cluster.nodes) if cluster.may_free(contender) else None
            if reservation is not None:
                plans.append(ClusterReservation(agent, contender, reservation))
        return min(plans, key=lambda reserved: (reserved.reservation.missing, reserved.agent), default=None)

    @cached_property
    def _clusters(self) -> Mapping[str, Cluster]:
        return self._load()


def clusters_of(
    session: Session, line: Line, claimant: str | None = None, running: Collection[str] = ()
) -> dict[str, Cluster]:
    """The clusters of the connected agents that get trials: those that can write checkpoints. By agent.

    `running` are the trials that the claimant says to run. They may have ended since, but what they held is not yet
    among what it says to be free.
    """
    rows = [row for row in line.agents if row.storage_error is None]
    priorities = {place.id: place.rank.priority for page in line.pages for place in page}
    # Not those of the line, which may have ended since it was read: they would count twice.
    groups = [(one, priorities.get(one.experiment_id)) for one in running_groups(session)]
    if claimant is not None:
        groups += [(one, None) for one in ended_groups(session, claimant, running)]
    held = _held_on(session, {row.name for row in rows}, groups)
    return {row.name: Cluster([_without_withheld(node) for node in nodes_of(row)], held[row.name]) for row in rows}


def _without_withheld(node: Node) -> Node:
    """Nothing of a withheld node is offered, also not what is freed there."""
    return node if node.withheld is None else node.model_copy(update={"total": {}})


def _held_on(
    session: Session, agents: Collection[str], groups: Iterable[tuple[RunningGroups, int | None]]
) -> dict[str, list[Held] | None]:
    """What these worker groups hold, by agent; None if a trial with tasks of Ray Data or a validation may hold more."""
    running = [(one, priority) for one, priority in groups if one.holder in agents]
    trainers = trainers_of(session, {one.experiment_id for one, _ in running})
    held: dict[str, list[Held] | None] = {agent: [] for agent in agents}
    for one, priority in running:
        trainer, known = trainers.get(one.experiment_id), held[one.holder]
        if trainer is None or trainer.datasets or trainer.validation:
            held[one.holder] = None
        elif known is not None:
            known.append(Held(one.experiment_id, priority, held_by(one, trainer, at_most=True)))
    return held
