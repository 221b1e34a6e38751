"""Queries on confirmations: trials that run the params of a good trial again, with another seed."""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from search.analysis.confirmation import Confirmed, Lead, lead_in, ranked, untested_in
from search.problem import Direction, sign_of
from service.domain.statuses import LIVE_TRIAL, TrialStatus
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.ended_trials import ran_to_completion
from service.store.trials.trial_values import is_feasible


def confirmations_of(session: Session, experiment_ids: Collection[str]) -> Sequence[TrialRow]:
    """The confirmations of these experiments, by number."""
    query = select(TrialRow).where(TrialRow.experiment_id.in_(experiment_ids), TrialRow.confirms.is_not(None))
    return session.scalars(query.order_by(TrialRow.experiment_id, TrialRow.number)).all()


def confirmed_trials(session: Session, experiment_ids: Collection[str]) -> Sequence[TrialRow]:
    """The trials that have confirmations, by number."""
    again = aliased(TrialRow)
    is_confirmed = select(again.id).where(
        again.experiment_id == TrialRow.experiment_id, again.confirms == TrialRow.number
    )
    query = select(TrialRow).where(TrialRow.experiment_id.in_(experiment_ids), is_confirmed.exists())
    return session.scalars(query.order_by(TrialRow.experiment_id, TrialRow.number)).all()


def confirmed_winners(session: Session, experiments: Collection[ExperimentRow]) -> dict[str, TrialRow]:
    """The best of the trials whose confirmations have all ended, by experiment; without experiments that have none.

    Nor those of which a trial has no confirmation that says anything, because the experiment's end has stopped them.
    """
    wanted = [one for one in experiments if one.spec.get("confirm")]
    ids = [one.id for one in wanted]
    chosen = _by_experiment(confirmed_trials(session, ids)) if ids else {}
    confirmations = _by_experiment(confirmations_of(session, ids)) if chosen else {}
    winners = {}
    for one in wanted:
        own = confirmations.get(one.id, [])
        rank = [] if any_to_come(own) else ranking(one, chosen.get(one.id, []), own)
        if rank and rank[0].n and not untested_in(rank):
            winners[one.id] = next(trial for trial in chosen[one.id] if trial.number == rank[0].number)
    return winners


def _by_experiment(trials: Sequence[TrialRow]) -> dict[str, list[TrialRow]]:
    groups: dict[str, list[TrialRow]] = {}
    for trial in trials:
        groups.setdefault(trial.experiment_id, []).append(trial)
    return groups


def any_to_come(confirmations: Collection[TrialRow]) -> bool:
    return any(one.status in LIVE_TRIAL for one in confirmations)


def counts_in_mean(experiment: ExperimentRow, one: TrialRow) -> bool:
    """Whether the confirmation ran to its end, or to its time limit as the search's trials do, and is feasible."""
    return ran_to_completion(one) and one.value is not None and is_feasible(experiment, one) is not False


def ranking(
    experiment: ExperimentRow, chosen: Sequence[TrialRow], confirmations: Sequence[TrialRow]
) -> list[Confirmed]:
    """The `chosen` trials by their confirmations, the best first.

    Without those that others have displaced since, because the search went on, and that no confirmation has tested.
    """
    rank = ranked([_confirmed(experiment, trial, confirmations) for trial in chosen], _direction(experiment))
    displaced = set(untested_in(rank)) & _displaced(experiment, chosen)
    return [one for one in rank if one.number not in displaced]


def _displaced(experiment: ExperimentRow, chosen: Sequence[TrialRow]) -> set[int]:
    """The numbers of those that are no longer among the best of the search."""
    sign = sign_of(_direction(experiment))
    with_values = [(sign * trial.value, trial.number) for trial in chosen if trial.value is not None]
    remaining = {number for _, number in sorted(with_values)[: experiment.spec["confirm"]["top"]]}
    return {trial.number for trial in chosen} - remaining


def lead_of(experiment: ExperimentRow, rank: Sequence[Confirmed]) -> Lead | None:
    """How far the first of a `ranking` is ahead; None if there is nothing to compare."""
    return lead_in(rank, _direction(experiment))


def _direction(experiment: ExperimentRow) -> Direction:
    direction: Direction = experiment.spec["objectives"][0]["direction"]
    return direction


def _confirmed(experiment: ExperimentRow, trial: TrialRow, confirmations: Sequence[TrialRow]) -> Confirmed:
    own = [one for one in confirmations if one.confirms == trial.number]
    values = [one.value for one in own if one.value is not None and counts_in_mean(experiment, one)]
    return Confirmed(trial.number, trial.value or 0.0, tuple(values), sum(_failed(experiment, one) for one in own))


def _failed(experiment: ExperimentRow, one: TrialRow) -> bool:
    """Whether it says something against its configuration, as one that a user has stopped does not."""
    is_infeasible = ran_to_completion(one) and is_feasible(experiment, one) is False
    return one.status == TrialStatus.FAILED or is_infeasible
