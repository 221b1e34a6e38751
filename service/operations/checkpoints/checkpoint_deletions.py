"""Deletes the checkpoints of a deleted experiment.

Only agents are sure to reach the storage, and each may have one of its own. So the deletion of the experiment stores
what each agent has to delete, in the same transaction, and it stays stored until the agent has done it.
"""

import re
from collections.abc import Iterator

from sqlalchemy.orm import Session

from service.domain.attempt_holders import is_caller
from service.operations.checkpoints.folders import chooses_server, experiment_folder, split_query, uri_below
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.attempts import holders_of
from service.store.checkpoints.checkpoint_deletions import add_deletions, deletions_for, note_failure, remove_deletions
from service.store.checkpoints.donated_checkpoints import known_checkpoints
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.wire import Deletion, DeletionResults, Kind


def schedule_deletion(session: Session, experiment: ExperimentRow, storage: str) -> None:
    """Have the agents that ran the experiment delete its folders. Those of `kind: external` are their holders' own."""
    if spec_of(experiment).trainer.kind is Kind.EXTERNAL:
        return
    agents = [holder for holder in holders_of(session, experiment.id) if not is_caller(holder)]
    add_deletions(session, agents, sorted(set(_folders(session, experiment, storage))), database_now(session))


def _folders(session: Session, experiment: ExperimentRow, storage: str) -> Iterator[str]:
    """The experiment's folder in the present storage, and in those where earlier checkpoints were saved."""
    name = experiment_folder(experiment)
    yield uri_below(storage, name)
    for uri in known_checkpoints(session, experiment.id):
        path, mark, query = split_query(uri)
        found = re.fullmatch(rf"(.+/{re.escape(name)})/trial-\d+-attempt-\d+/[^/]+", path.rstrip("/"))
        if found is not None and ".." not in found[1].split("/") and not chooses_server(uri, storage):
            # otherwise no slot has saved it
            yield f"{found[1]}{mark}{query}"


def deletions_of_agent(session: Session, agent: str) -> list[Deletion]:
    rows = deletions_for(session, agent, database_now(session))
    return [Deletion(id=row.id, directory=row.directory) for row in rows]


def take_deletion_results(context: Context, results: DeletionResults) -> None:
    """Forget what is deleted, and keep why something is not. A repeat is harmless."""
    with context.database.write() as session:
        remove_deletions(session, results.deleted)
        now = database_now(session)
        for failure in results.failed:
            note_failure(session, failure.id, failure.error, now)
