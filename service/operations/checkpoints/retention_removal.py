"""Applies retention: what is not kept any more is noted as removed, and the agents that saved it get to delete it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from service.operations.checkpoints.folders import UrisByFolder, chooses_server, run_folder_of, run_of
from service.operations.checkpoints.retention_plan import Plan, facts_of, plan_of
from service.operations.checkpoints.retention_rules import RetainedCheckpoint, RetentionVerdict
from service.runtime.context import Context
from service.store.checkpoints.checkpoint_deletions import add_deletions
from service.store.checkpoints.checkpoints import count_bytes, present_checkpoints_of, uris_in_use
from service.store.events import append_event
from service.store.experiments import lock_experiment
from service.store.sql.database import database_now
from service.store.tables import CheckpointRow, ExperimentRow
from service.store.trials.resume_point import resume_points
from service.store.trials.trials import ids_changed_after

REMOVED_AT_ONCE = 500
"""The most checkpoints that one transaction removes. Reports wait for the transaction."""


def remove_unneeded(context: Context, experiment_id: str) -> bool:
    """Remove what the plan removes. Returns whether the plan may change without an event.

    The checkpoints' rows, the events and the orders to the agents are one transaction: before it all checkpoints are
    on the storage, and after it the API says which are not, or will soon not be, even if a process is killed then.
    There may be several, all by one plan, which is made before them: it takes long, and reports would wait for it.
    """
    with context.database.read() as session:
        experiment = session.get(ExperimentRow, experiment_id)
        facts = facts_of(session, experiment) if experiment is not None else None
    if facts is None:
        return False
    plan = plan_of(facts)
    removal = _Removal(plan, context.settings.storage)
    for verdicts in _batches(plan.removals):
        try:
            with context.database.write() as session:
                removal.remove(session, verdicts)
        except PlanOutdated:
            return True
        context.new_events.notify()
        if context.stopping.is_set():
            return True
    return plan.is_waiting or removal.has_skipped


def _batches(verdicts: Sequence[RetentionVerdict]) -> list[Sequence[RetentionVerdict]]:
    return [verdicts[start : start + REMOVED_AT_ONCE] for start in range(0, len(verdicts), REMOVED_AT_ONCE)]


class PlanOutdated(Exception):
    """The experiment, or a trial that had ended, has changed in a way that calls for another plan."""


class _Removal:
    """Removes the checkpoints that a plan removes, and none that is needed now. Not to be used after an exception."""

    def __init__(self, plan: Plan, storage: str) -> None:
        self._plan = plan
        self._storage = storage
        self._left = Counter(one.checkpoint.uri for one in plan.verdicts)
        self._removed: set[str] = set()
        self._known = UrisByFolder({*plan.needed, *self._left})
        self.has_skipped = False

    def remove(self, session: Session, verdicts: Sequence[RetentionVerdict]) -> None:
        """Lock the experiment, and remove those that still are as the plan knew them. Raises PlanOutdated."""
        experiment = lock_experiment(session, self._plan.experiment.id)
        if experiment is None:
            raise PlanOutdated
        needed, now = _needed_since(session, experiment, self._plan), database_now(session)
        ids = self._plan.trial_ids
        rows = present_checkpoints_of(session, {ids[one.checkpoint.trial] for one in verdicts})
        found = [(one, rows.get((ids[one.checkpoint.trial], one.checkpoint.step))) for one in verdicts]
        gone = [one for one, row in found if row is None]  # another service has removed them
        unneeded = [(one, row) for one, row in found if row and _is_as_planned(row, one.checkpoint, needed)]
        self.has_skipped |= len(gone) + len(unneeded) < len(found)
        _note_removed(session, experiment, unneeded, Counter(row.trial_id for row in rows.values()), now)
        self._forget([one.checkpoint.uri for one in gone] + [row.uri for _, row in unneeded])
        self._order_deletions(session, experiment, [one.checkpoint for one, _ in unneeded], UrisByFolder(needed), now)

    def _forget(self, uris: Sequence[str]) -> None:
        """Several checkpoints may have the same URI."""
        self._left.subtract(uris)
        self._removed.update(uri for uri in uris if not self._left[uri])

    def _order_deletions(
        self,
        session: Session,
        experiment: ExperimentRow,
        removed: Sequence[RetainedCheckpoint],
        needed: UrisByFolder,
        now: datetime,
    ) -> None:
        """Have the agents that saved these delete them; of a run without a needed checkpoint, the whole folder."""
        by_folder: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for one in removed:
            folder = run_folder_of(one.uri, run_of(experiment, one.trial, one.attempt))
            if folder is None or one.agent is None:  # neither is of any that the plan removes
                continue
            if one.uri in self._removed and not chooses_server(one.uri, self._storage):
                by_folder[one.agent, folder].add(one.uri)
        orders: defaultdict[str, set[str]] = defaultdict(set)
        for (agent, folder), uris in by_folder.items():
            left = (uri for uri in self._known.below(folder) if uri not in self._removed)
            orders[agent].update(uris if any(left) or any(needed.below(folder)) else {folder})
        for agent, directories in orders.items():
            add_deletions(session, [agent], sorted(directories), now)


def _note_removed(
    session: Session,
    experiment: ExperimentRow,
    removed: Sequence[tuple[RetentionVerdict, CheckpointRow]],
    counts: Mapping[str, int],
    now: datetime,
) -> None:
    """In their rows and in events. `counts`: how many each trial has, with those that are removed."""
    removed_counts = Counter(row.trial_id for _, row in removed)
    for one, row in removed:
        row.removed_at, row.removed_why = now, one.why
        count_bytes(experiment, removed=row.bytes)
        data = {"step": row.step, "uri": row.uri, "bytes": row.bytes, "why": one.why}
        data["left_count"] = counts[row.trial_id] - removed_counts[row.trial_id]
        append_event(session, experiment, "checkpoint.removed", data, at=now, trial_id=row.trial_id)


def _needed_since(session: Session, experiment: ExperimentRow, plan: Plan) -> set[str]:
    """What running attempts have resumed from, or trials would that have changed since the plan. Raises PlanOutdated.

    Other trials that end only displace others from the best. One that had ended and goes on, another rule, or an
    experiment that is reopened may make any checkpoint needed.
    """
    before, changed = plan.experiment, ids_changed_after(session, experiment.id, plan.experiment.event_count)
    is_same = (experiment.status, experiment.spec_changed_at_event) == (before.status, before.spec_changed_at_event)
    if not is_same or not plan.ended.isdisjoint(changed):
        raise PlanOutdated
    return uris_in_use(session, experiment.id) | {point.uri for point in resume_points(session, changed).values()}


def _is_as_planned(row: CheckpointRow, planned: RetainedCheckpoint, needed: Collection[str]) -> bool:
    """Whether it is still that checkpoint, and nothing has come to need it."""
    is_same = (row.attempt, row.sequence, row.uri) == (planned.attempt, planned.sequence, planned.uri)
    return is_same and not row.pinned and row.uri not in needed
