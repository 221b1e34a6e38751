"""What experiments wait for whose next trial cannot start: resources, storage, or a library that the sampler needs."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.orm import Session

from service.domain.group_fit import kept_for_another, waiting_for, with_kept
from service.domain.statuses import ExperimentStatus, TrialStatus
from service.operations.attempts.scheduling.reservations import ClusterReservation, shown_reservations
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.agents import connected_agents, nodes_of
from service.store.experiments import may_run_trials
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.wire import Kind, Node, WorkerGroup

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
    reserved = shown_reservations(context, session, missing.keys()) if usable else {}
    return missing | {
        row.id: _with_reserved(row, missing[row.id], reserved[row.id]) for row in idle if row.id in reserved
    }


def _with_reserved(row: ExperimentRow, missing: str | None, reserved: ClusterReservation) -> str | None:
    first = reserved.contender.experiment
    if first.id == row.id:
        return with_kept(missing, reserved.agent) if missing else None
    return missing or kept_for_another(spec_of(row).trainer.group, first.name)


def _waiting_by_storage(
    group: WorkerGroup, agents: Mapping[str, Sequence[Node]], usable: Mapping[str, Sequence[Node]]
) -> str | None:
    """Agents get no trial while they cannot write to the storage."""
    missing = waiting_for(group, usable)
    return NO_STORAGE_WITH_ROOM if missing and waiting_for(group, agents) is None else missing
