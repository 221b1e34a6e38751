"""What confirmations have shown, as the API shows it."""

from collections.abc import Sequence
from typing import Literal, Self

from sqlalchemy.orm import Session

from search.analysis.confirmation import Confirmed, Lead, verdict_of
from service.api.views.rows import View
from service.domain.statuses import LIVE_EXPERIMENT
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.confirmations import (
    any_to_come,
    confirmations_of,
    confirmed_trials,
    counts_in_mean,
    lead_of,
    ranking,
)

State = Literal["waiting", "running", "complete", "none"]

TEST = "Welch's t-test of the two means, two-sided"


class ConfirmationTrialView(View):
    """One confirmation: the configuration with another seed."""

    number: int
    """the trial's number"""
    id: str
    """the trial's id"""
    seed: int
    """the `config.seed` of this trial"""
    status: str
    """the trial's status"""
    value: float | None
    """its value"""
    counts: bool
    """whether its value is in the mean: it ran to its end, and is feasible"""


class ConfirmedView(View):
    """A configuration that has been run again with other seeds."""

    number: int
    """the number of the trial of the search that it was chosen for"""
    id: str
    """the id of that trial"""
    value: float | None
    """the value of that trial. It was chosen for this value, so that it is too good on average; it is in no mean"""
    mean: float | None
    """the mean of its confirmations; null before the first"""
    standard_error: float | None
    """the standard error of the mean; null of fewer than two confirmations"""
    n: int
    """how many confirmations the mean is of"""
    failed_count: int
    """how many of its confirmations failed or broke a constraint"""
    confirmations: list[ConfirmationTrialView]
    """each of them"""


class LeadView(View):
    """Whether the first configuration leads the second by more than noise."""

    runner_up: int
    """the number of the second configuration's trial"""
    difference: float
    """how much better the mean of the first is"""
    standard_error: float
    """the standard error of the difference"""
    degrees_of_freedom: float | None
    """of the test, by Welch's and Satterthwaite's formula; null if no value varies"""
    p_value: float | None
    """how likely such a difference is between equal means; null if no value varies"""
    within_noise: bool
    """whether p_value is not below 0.05: the first may be no better than the second"""
    test: str
    """the test that was used"""

    @classmethod
    def of(cls, lead: Lead, runner_up: int) -> Self:
        return cls(
            runner_up=runner_up,
            difference=lead.difference,
            standard_error=lead.standard_error,
            degrees_of_freedom=lead.degrees_of_freedom,
            p_value=lead.p_value,
            within_noise=lead.is_within_noise,
            test=TEST,
        )


class ConfirmationView(View):
    """The best configurations of a search, run again with other seeds."""

    state: State
    """`waiting` (the search runs), `running`, `complete`, or `none` (the experiment ended before any was confirmed)"""
    verdict: str
    """what the confirmations show, as a sentence"""
    lead: LeadView | None
    """how far the first configuration is ahead; null if there is nothing to compare"""
    ranking: list[ConfirmedView]
    """the configurations, best first: those with the fewest failures, then by their means"""


def confirmation_view(session: Session, experiment: ExperimentRow) -> ConfirmationView:
    confirmations, chosen = confirmations_of(session, [experiment.id]), confirmed_trials(session, [experiment.id])
    rank = ranking(experiment, chosen, confirmations)
    lead = lead_of(experiment, rank)
    state = _state(experiment, confirmations)
    trials = {trial.number: trial for trial in chosen}
    return ConfirmationView(
        state=state,
        verdict=_verdict(state, rank, lead),
        lead=LeadView.of(lead, rank[1].number) if lead else None,
        ranking=[_confirmed(experiment, one, trials[one.number], confirmations) for one in rank],
    )


def _state(experiment: ExperimentRow, confirmations: Sequence[TrialRow]) -> State:
    if confirmations:
        return "running" if any_to_come(confirmations) else "complete"
    return "waiting" if experiment.status in LIVE_EXPERIMENT else "none"


def _verdict(state: State, rank: Sequence[Confirmed], lead: Lead | None) -> str:
    if state == "waiting":
        return "the search has not ended: nothing is confirmed yet"
    if state == "none":
        why = "the best value was selected among many noisy values, so it is probably too optimistic"
        return f"the experiment ended before a configuration was confirmed: {why}"
    if state == "running":
        return "confirmations are still to come; until then the best trial is that of the search"
    return verdict_of(rank, lead)


def _confirmed(
    experiment: ExperimentRow, one: Confirmed, trial: TrialRow, confirmations: Sequence[TrialRow]
) -> ConfirmedView:
    return ConfirmedView(
        number=one.number,
        id=trial.id,
        value=trial.value,
        mean=one.mean,
        standard_error=one.standard_error,
        n=one.n,
        failed_count=one.failed_count,
        confirmations=[
            ConfirmationTrialView(
                number=each.number,
                id=each.id,
                seed=each.seed or 0,
                status=each.status,
                value=each.value,
                counts=counts_in_mean(experiment, each),
            )
            for each in confirmations
            if each.confirms == one.number
        ],
    )
