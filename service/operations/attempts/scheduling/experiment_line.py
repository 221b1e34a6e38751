"""The line in which experiments wait for resources: who comes first, and who may start a trial now.

The order: a higher priority; a smaller share of the clusters' resources; the older experiment. The share is that of
dominant resource fairness (Ghodsi et al., 2011): of all resources, the one of which an experiment holds the largest
part counts. Experiments with equal shares whose groups differ in size take turns: see `_with_turns`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from sqlalchemy.orm import Session

from service.domain.attempt_holders import is_caller
from service.domain.fits_beside import needs_more, needs_of
from service.domain.group_fit import could_fit
from service.domain.statuses import TrialStatus
from service.operations.attempts.scheduling.startable_trials import COUNTED, is_left_to_slots, startable_trials
from service.runtime.caches.experiment_caches import readable, spec_of, trainers_of
from service.runtime.context import Context
from service.store.agents import connected_agents, nodes_of, total_resources
from service.store.attempts import RunningGroups, last_served, running_groups, worker_count
from service.store.experiments import experiments_with, startable_experiments
from service.store.sql.database import database_now
from service.store.tables import AgentRow, ExperimentRow
from service.store.trials.trials import counts_of_all
from trainer.wire import Kind, Trainer, WorkerGroup

PAGE = 20
"""The number of experiments read at a time. The first page is mostly enough; reading a thousand specs takes 0.1 s."""

TURN = timedelta(seconds=60)
"""How long an experiment waits for its turn among those of its priority. Each turn costs a start of new workers."""


class Rank(NamedTuple):
    """What decides the order of the line. Experiments of equal rank are in the order of their age."""

    priority: int
    share: float
    running: int

    @property
    def key(self) -> tuple[int, float, int]:
        return -self.priority, self.share, self.running


class Place(NamedTuple):
    """An experiment in the line."""

    id: str
    rank: Rank


@dataclass(frozen=True)
class Contender:
    """An experiment that may start a trial on an agent's cluster now, if there is room.

    `is_due`: it runs nothing, and has waited for a turn's time. `may_wait`: its next trial will start as soon as there
    is room, so resources may be kept for it.
    """

    experiment: ExperimentRow
    rank: Rank
    group: WorkerGroup
    served_at: datetime
    is_due: bool
    may_wait: bool

    def comes_before_all_of(self, other: "Contender") -> bool:
        """Whether it also goes before trials of the other one that would fit now, if it is ahead in the line."""
        return self.rank.priority > other.rank.priority or self.is_due

    def overtakes(self, older: "Contender") -> bool:
        """Whether it is its turn before an older one of equal rank."""
        is_longer_ago = self.is_due and self.served_at < older.served_at
        return is_longer_ago and needs_of(self.group) != needs_of(older.group)


@dataclass(frozen=True)
class Line:
    """All experiments that may start trials, the next in line first, in pages; and the agents connected at `now`."""

    pages: Sequence[Sequence[Place]]
    agents: Sequence[AgentRow]
    now: datetime

    @property
    def experiment_ids(self) -> set[str]:
        return {place.id for page in self.pages for place in page}


def read_line(session: Session) -> Line:
    now = database_now(session)
    agents = connected_agents(session, now)
    rows, running = startable_experiments(session), running_groups(session)
    shares = _shares(session, running, agents) if len(rows) > 1 else {}
    counts = Counter[str]()
    for one in running:
        counts[one.experiment_id] += one.attempts
    places = [Place(row.id, Rank(row.priority, shares.get(row.id, 0.0), counts[row.id])) for row in rows]
    places.sort(key=lambda place: place.rank.key)  # stable: those of equal rank stay in the order of their age
    return Line([places[first : first + PAGE] for first in range(0, len(places), PAGE)], agents, now)


def _shares(session: Session, running: Collection[RunningGroups], agents: Iterable[AgentRow]) -> dict[str, float]:
    """The largest of the parts that each experiment holds of the clusters' resources, by its id."""
    if not running:
        return {}
    totals = total_resources(agents)
    held: dict[str, Counter[str]] = {}
    trainers = trainers_of(session, {one.experiment_id for one in running})
    for one in running:
        if (trainer := trainers.get(one.experiment_id)) is not None:
            held.setdefault(one.experiment_id, Counter()).update(held_by(one, trainer))
    return {id_: _dominant(amounts, totals) for id_, amounts in held.items()}


def held_by(running: RunningGroups, trainer: Trainer, *, at_most: bool = False) -> dict[str, float]:
    """What the workers of these groups reserve. `at_most`: a group that has not told its size counts as its largest."""
    is_unknown = at_most and running.world_size is None
    count = trainer.group.max_workers if is_unknown else worker_count(running, trainer.scaling)
    workers = running.attempts * count
    return {name: amount * workers for name, amount in trainer.group.worker.items()}


def _dominant(held: Mapping[str, float], totals: Mapping[str, float]) -> float:
    """Of a resource that no connected cluster has, the amount itself counts. Rounded, so that sums compare as equal."""
    return round(max((amount / (totals.get(name) or 1.0) for name, amount in held.items()), default=0.0), 9)


def contenders(context: Context, session: Session, line: Line, page: Sequence[Place]) -> list[Contender]:
    """The experiments of a page that may start a trial on an agent's cluster, the next in line first."""
    ids = [place.id for place in page]
    counts = counts_of_all(session, ids, COUNTED)
    served = last_served(session, ids) if len(ids) > 1 else {}  # one alone lets none wait
    ranks = {place.id: place.rank for place in page}
    found = []
    for row in readable(experiments_with(session, ids)):
        spec = spec_of(row)
        if startable_trials(row, counts[row.id]) is None or spec.trainer.kind is Kind.EXTERNAL:
            continue
        served_at = served.get(row.id, row.created_at)
        can_give_trial = counts[row.id][TrialStatus.QUEUED] > 0 or spec.chosen_sampler.sampler.lacking is None
        may_wait = can_give_trial and not is_left_to_slots(context, row, counts[row.id])
        is_due = ranks[row.id].running == 0 and line.now - served_at >= TURN
        found.append(Contender(row, ranks[row.id], spec.trainer.group, served_at, is_due, may_wait))
    return [one for _, equals in groupby(found, key=lambda one: one.rank) for one in _with_turns(list(equals))]


def _with_turns(equals: list[Contender]) -> list[Contender]:
    """Let each that is due go before those of equal rank and another size that have been served since.

    Otherwise a group that needs the whole cluster would never start beside an older experiment of small trials: when
    the last small trial has ended, both hold nothing. Experiments of one size go on in the order of their age, so that
    slots stay warm.
    """
    ordered: list[Contender] = []
    for one in equals:
        overtaken = (place for place, other in enumerate(ordered) if one.overtakes(other))
        ordered.insert(next(overtaken, len(ordered)), one)
    return ordered


def is_first_in_line(context: Context, session: Session, experiment: ExperimentRow, holder: str) -> bool:
    """Whether no other experiment comes before it for the capacity that its trial has just freed.

    One of the same priority that needs more than was freed does so only when it is due: until then it could not use it,
    and the slot would get its next trial later. A caller that runs trials itself takes nothing of an agent's.
    """
    if is_caller(holder):
        return True
    line = read_line(session)
    if _is_alone_in_front(experiment, line.pages):
        return True
    own = [agent for agent in line.agents if agent.name == holder]
    clusters, group = [nodes_of(agent) for agent in own or line.agents], spec_of(experiment).trainer.group
    for one in (one for page in line.pages for one in contenders(context, session, line, page)):
        if one.experiment.id == experiment.id:
            return True
        is_urgent = one.is_due or one.rank.priority > experiment.priority
        may_use_it = one.may_wait and (is_urgent or not needs_more(one.group, group))
        if may_use_it and any(could_fit(one.group, nodes) for nodes in clusters):
            return False
    return False


def _is_alone_in_front(experiment: ExperimentRow, pages: Sequence[Sequence[Place]]) -> bool:
    first = [place for page in pages[:1] for place in page[:2]]
    return bool(first) and first[0].id == experiment.id and all(one.rank != first[0].rank for one in first[1:])
