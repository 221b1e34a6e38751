"""The cached study of an experiment: an in-memory study with its newest proposal, built from SQL."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from search.problem import Observation
from search.space.narrowed_space import inside
from search.space.space import Params
from search.study import Study, StudyView
from search.warm_starts.proposer import Contribution
from search.warm_starts.trial_selection import from_json, still_fitting
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.observations.observations import observation_of, seed_of, with_rungs
from service.specification.models import ExperimentSpec
from service.store.early_stopping.milestones import ReachedMilestone
from service.store.lookup import experiment_named
from service.store.sql.process_caches import cache_epoch
from service.store.tables import ExperimentRow, TrialRow, WarmStartRow


@dataclass(frozen=True)
class ProposalTarget:
    """What a proposal is made for; it is valid for no other.

    The number of the trial, the version of the spec, and the epoch of the process's caches.
    """

    number: int
    spec_changed_at_event: int
    cache_epoch: int


@dataclass(frozen=True)
class Proposal:
    """A configuration for `target`, proposed from the history up to event `seen_event`.

    `source` is what it comes from, `estimate` what the sampler's model expects of it, and `warm_start` what earlier
    experiments have to do with it. `seen_milestone` is the last change of the experiment's milestones that it is based
    on; None if it needs none. `may_be_outdated`: it is from before the claim that it is offered to, and the history may
    have changed since.
    """

    target: ProposalTarget
    seen_event: int
    params: Params
    source: str
    estimate: dict[str, Any] | None
    warm_start: Contribution
    seen_milestone: int | None = None
    may_be_outdated: bool = False


@dataclass
class CachedStudy:
    """The study of an experiment under one version of its spec, and one epoch of the process's caches.

    `observations` are its trials, and `milestones` those that they have reached, both by trial number. They are kept
    for the curve score, because trials reach milestones without another change.
    """

    spec: ExperimentSpec
    spec_changed_at_event: int
    cache_epoch: int
    view: StudyView
    seen_event: int = 0
    seen_milestone: int = 0
    newest: Proposal | None = None
    has_library: bool = False
    observations: dict[int, Observation] = field(default_factory=dict)
    milestones: defaultdict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def propose(self, trials: Sequence[TrialRow], milestones: Sequence[ReachedMilestone], number: int) -> Proposal:
        """`trials` have changed since the last proposal, and `milestones` were reached."""
        newest, target = self.newest, ProposalTarget(number, self.spec_changed_at_event, self.cache_epoch)
        if newest is not None and newest.target == target and not (trials or milestones):
            return newest
        seen = self._learn(trials, milestones)
        seen_event = max([self.seen_event, *(trial.changed_at_event for trial in trials)])
        seen_milestone = max([self.seen_milestone, *(row.change for row in milestones)])
        needed = seen_milestone if self.view.scores_curves else None
        params = self.view.propose(seen, number)
        self.newest = Proposal(
            target,
            seen_event,
            params,
            self.view.source(number),
            self.view.estimate(number, params),
            self.view.contribution(number),
            needed,
        )
        self.seen_event, self.seen_milestone = seen_event, seen_milestone
        return self.newest

    def _learn(self, trials: Sequence[TrialRow], milestones: Sequence[ReachedMilestone]) -> list[Observation]:
        """What is new for the search. It ignores trials outside of a space that was narrowed, and confirmations."""
        for row in milestones:
            self.milestones[row.number][row.milestone] = row.value
        rows = {trial.number: observation_of(self.spec, trial) for trial in trials if trial.confirms is None}
        found = list(rows.values())
        if self.view.scores_curves:
            self.observations |= rows
            numbers = {*rows, *(row.number for row in milestones)} & self.observations.keys()
            found = [with_rungs(self.spec, self.observations[number], self.milestones) for number in sorted(numbers)]
        if self.spec_changed_at_event == 0:
            return found
        return [one for one in found if inside(self.spec.space, one.params)]


def current_study(cached: CachedStudy | None, session: Session, experiment_id: str) -> CachedStudy:
    """The cached one, or a new one if the spec has changed, or the database may have lost trials. Not thread-safe."""
    changed = session.scalar(select(ExperimentRow.spec_changed_at_event).where(ExperimentRow.id == experiment_id))
    version = cache_epoch(session), changed
    if cached is None or (cached.cache_epoch, cached.spec_changed_at_event) != version:
        return _empty_study(session, experiment_id)
    return cached


def _empty_study(session: Session, experiment_id: str) -> CachedStudy:
    """A study without trials. The spec and the event of its last change are read in one query."""
    epoch = cache_epoch(session)
    experiment = experiment_named(session, experiment_id)
    spec = spec_of(experiment)
    study = Study(spec.problem, spec.search, seed_of(spec, experiment_id))
    warm = session.get(WarmStartRow, experiment_id) if spec.search.warm_start else None
    known = still_fitting(spec.problem, spec.search, from_json(warm.observations)) if warm else []
    return CachedStudy(spec, experiment.spec_changed_at_event, epoch, StudyView(study, known))
