"""What the views of experiments show beside the experiments' rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from service.api.views.missing_metrics import missing_metrics
from service.api.views.trials import TrialView, trial_views
from service.domain.statuses import ELIGIBLE_FOR_BEST, ExperimentStatus
from service.operations.attempts.scheduling.waiting_for import missing_for_next_trials
from service.runtime.caches.experiment_caches import readable, spec_of, trial_counts
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.attempts import first_tracebacks
from service.store.experiments import warm_starts_of
from service.store.mirrors import mirrors_of
from service.store.tables import ExperimentRow, MirrorRow
from service.store.trials.best_trials import best_trials
from service.store.trials.trial_values import objective_names


@dataclass(frozen=True)
class ExperimentFacts:
    """Facts of several experiments, each by the experiment's id.

    `specs` has the specs that this version can read, `counts` the number of trials in each status.
    """

    specs: Mapping[str, ExperimentSpec]
    counts: Mapping[str, dict[str, int]]
    mirrors: Mapping[str, MirrorRow]
    best: Mapping[str, TrialView]
    tracebacks: Mapping[str, str | None]
    warm_starts: Mapping[str, list[dict[str, Any]]]
    waiting_for: Mapping[str, str | None]
    missing_metrics: Mapping[str, str]


def load_facts(context: Context, session: Session, rows: Sequence[ExperimentRow]) -> ExperimentFacts:
    """Load the facts of these experiments. The number of queries does not grow with the number of rows."""
    known = readable(rows)
    specs, counts = {row.id: spec_of(row) for row in known}, trial_counts(session, rows)
    failed = [row.id for row in rows if row.status == ExperimentStatus.FAILED]
    warm_started = [id_ for id_, spec in specs.items() if spec.search.warm_start]
    return ExperimentFacts(
        specs=specs,
        counts=counts,
        mirrors=mirrors_of(session, [row.id for row in rows]),
        best=_best_views(session, [row for row in rows if len(objective_names(row)) == 1], counts),
        tracebacks=first_tracebacks(session, failed) if failed else {},
        warm_starts=warm_starts_of(session, warm_started) if warm_started else {},
        waiting_for=missing_for_next_trials(context, session, known, counts),
        missing_metrics=missing_metrics(session, rows, counts),
    )


def _best_views(
    session: Session, rows: Sequence[ExperimentRow], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, TrialView]:
    """The best trial of each experiment that has one, by the experiment's id."""
    with_eligible = [row for row in rows if any(counts[row.id][status] for status in ELIGIBLE_FOR_BEST)]
    if not with_eligible:
        return {}
    best = best_trials(session, with_eligible)
    return {view.experiment_id: view for view in trial_views(session, list(best.values()))}
