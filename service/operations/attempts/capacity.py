"""Decides whether an experiment may start another trial now, and whether others come before it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal

from sqlalchemy.orm import Session

from service.domain.group_fit import could_fit
from service.domain.statuses import ExperimentStatus, TrialStatus
from service.runtime.caches.experiment_caches import readable, spec_of
from service.runtime.context import Context
from service.store.agents import connected_agents, nodes_of
from service.store.experiments import experiments_with, may_run_trials, startable_experiment_ids
from service.store.tables import ExperimentRow
from service.store.trials.trials import counts_by_status
from trainer.wire import Kind, Node

Startable = Literal["any", "queued"]

COUNTED = TrialStatus.QUEUED, TrialStatus.RUNNING
"""The statuses whose counts decide whether a trial may start."""


def startable(experiment: ExperimentRow, counts: Mapping[str, int]) -> Startable | None:
    """Which trials may start: any, only queued ones, or none. `counts` has the experiment's trials in `COUNTED`."""
    if experiment.status != ExperimentStatus.RUNNING or not may_run_trials(experiment):
        return None
    spec, queued = spec_of(experiment), counts[TrialStatus.QUEUED]
    is_any_left = queued > 0 or experiment.trial_count < spec.max_search_trials
    if counts[TrialStatus.RUNNING] >= spec.limits.parallelism or not is_any_left:
        return None
    if experiment.end_reason is None:
        return "any"
    return "queued" if queued else None


def is_reserved_for_slots(context: Context, experiment: ExperimentRow, counts: Mapping[str, int]) -> bool:
    """Whether slots that wait for their next trial will use all the capacity that there is."""
    waiting = context.slot_handover.waiting_count(experiment.id)
    free = spec_of(experiment).limits.parallelism - counts[TrialStatus.RUNNING]
    return waiting > 0 and free <= waiting


def is_first_in_line(session: Session, experiment: ExperimentRow, now: datetime) -> bool:
    """Whether no other experiment comes before it for the capacity that its trial has just freed."""
    agents = [nodes_of(agent) for agent in connected_agents(session, now)]
    pages = startable_experiment_ids(session)
    for row in (row for page in pages for row in readable(experiments_with(session, page))):
        if row.id == experiment.id:
            return True
        if _fits_some_agent(row, agents) and startable(row, counts_by_status(session, row.id, COUNTED)) is not None:
            return False
    return False


def _fits_some_agent(experiment: ExperimentRow, agents: Collection[Sequence[Node]]) -> bool:
    trainer = spec_of(experiment).trainer
    return trainer.kind is not Kind.EXTERNAL and any(could_fit(trainer.group, nodes) for nodes in agents)
