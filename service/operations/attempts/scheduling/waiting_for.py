"""What experiments wait for whose next trial cannot start: resources, storage, or a library that the sampler needs."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy.orm import Session

from service.domain.missing_resources import kept_for_another, missing_resources, with_kept
from service.domain.statuses import ExperimentStatus, TrialStatus
from service.operations.attempts.scheduling.experiment_line import Contender, contenders, read_line
from service.operations.attempts.scheduling.reservations import ClusterReservation, Reservations, clusters_of
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.agents import connected_agents, nodes_of
from service.store.experiments import may_run_trials
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.wire import Kind, Node, WorkerGroup

SHOWN_PAGES = 5
"""For so many pages of the line it is shown what is reserved: reading a page takes milliseconds."""

NO_STORAGE = "the storage: no connected agent can write checkpoints to it; GET /v1/agents says why"
NO_STORAGE_WITH_ROOM = "the storage: no agent with room can write checkpoints to it; GET /v1/agents says why"


def missing_for_next_trials(
    context: Context, session: Session, experiments: Iterable[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str | None]:
    """Return sentences for the user, by the experiment's id; an experiment that waits for nothing has None or no entry.

    `experiments` are those whose specs this version can read; `counts` has the number of their trials by status.
    """
    starting = [row for row in experiments if row.status == ExperimentStatus.RUNNING and may_run_trials(row)]
    idle = [row for row in starting if not counts[row.id][TrialStatus.RUNNING]]
    proposing = [row for row in starting if not counts[row.id][TrialStatus.QUEUED]]
    return _missing_resources(context, session, idle) | _missing_libraries(proposing)


def _missing_libraries(experiments: Iterable[ExperimentRow]) -> dict[str, str | None]:
    """What the experiments lack whose next trial this service cannot propose."""
    chosen = {row.id: spec_of(row).chosen_sampler for row in experiments}
    return {id_: f"a library: {one.name} {lacking}" for id_, one in chosen.items() if (lacking := one.sampler.lacking)}


def _missing_resources(
    context: Context, session: Session, experiments: Sequence[ExperimentRow]
) -> dict[str, str | None]:
    """What the experiments lack that should run trials but run none."""
    idle = [row for row in experiments if spec_of(row).trainer.kind is not Kind.EXTERNAL]
    if not idle:
        return {}
    agents = connected_agents(session, database_now(session))
    nodes = {agent.name: nodes_of(agent) for agent in agents}
    usable = {agent.name: nodes[agent.name] for agent in agents if agent.storage_error is None}
    if agents and not usable:
        return dict.fromkeys((row.id for row in idle), NO_STORAGE)
    missing = {row.id: _waiting_by_storage(spec_of(row).trainer.group, nodes, usable) for row in idle}
    reserved = _shown_reservations(context, session, missing.keys()) if usable else {}
    return missing | {
        row.id: _with_reserved(row, missing[row.id], reserved[row.id]) for row in idle if row.id in reserved
    }


def _shown_reservations(
    context: Context, session: Session, experiment_ids: Collection[str]
) -> dict[str, ClusterReservation]:
    """What is reserved for each experiment, or for another one so that its own next trial has to wait, by its id.

    Experiments far back in the line are left out.
    """
    line = read_line(session)
    pages = line.pages[:SHOWN_PAGES]
    lowest = min((place.rank.priority for page in pages for place in page), default=0)
    found = [one for page in pages for one in contenders(context, session, line, page)]
    reservations, shown = Reservations(lambda: clusters_of(session, line)), dict[str, ClusterReservation]()
    for one in found:
        reserved = _shown_for(reservations, one, has_lower=one.rank.priority > lowest)
        if reserved is not None and one.experiment.id in experiment_ids:
            shown[one.experiment.id] = reserved
    return shown


def _shown_for(reservations: Reservations, one: Contender, *, has_lower: bool) -> ClusterReservation | None:
    """`has_lower`: whether others in the line have a lower priority."""
    fitting = reservations.fitting(one.group)
    if fitting:
        reserved = [reservations.blocking(agent, one) for agent in fitting]
        return reserved[0] if all(reserved) else None
    reservations.pass_over(one)
    return reservations.reserved_first_for(one) if one.may_wait and (one.is_due or has_lower) else None


def _with_reserved(row: ExperimentRow, missing: str | None, reserved: ClusterReservation) -> str | None:
    first = reserved.contender.experiment
    if first.id == row.id:
        return with_kept(missing, reserved.agent) if missing else None
    return missing or kept_for_another(spec_of(row).trainer.group, first.name)


def _waiting_by_storage(
    group: WorkerGroup, agents: Mapping[str, Sequence[Node]], usable: Mapping[str, Sequence[Node]]
) -> str | None:
    """Agents get no trial while they cannot write to the storage."""
    missing = missing_resources(group, usable)
    return NO_STORAGE_WITH_ROOM if missing and missing_resources(group, agents) is None else missing
