"""What early stopping says to a report: a function of the stored curves, stored with what it looked at."""

from search.early_stopping import Verdict, rule_for
from service.domain.statuses import StopCause, TrialStatus
from service.operations.ending import ask_to_stop
from service.operations.leases import Held
from service.store.events import append_event
from service.store.peers import StoredPeers
from service.store.tables import DecisionRow, MilestoneRow
from service.store.trials import counts_by_status, curve_of


def judge(held: Held, step: int, value: float) -> None:
    """Judges each milestone that the trial reaches with this report, up to the first that stops it.

    The first value at a milestone stands for ever.
    """
    trial, objective = held.trial, held.spec.objective
    rule = rule_for(held.spec.early_stopping)
    milestones = rule.milestones(trial.judged_step, step)
    trial.judged_step = max(step, trial.judged_step or step)
    if not milestones:
        return
    held.session.flush()
    curve, completed_count = _history(held) if rule.reads_history else ({step: value}, None)
    for milestone in milestones:
        if trial.stop_cause is not None:
            return
        if not _reach(held, milestone, value):
            continue
        peers = StoredPeers(held.session, held.experiment.id, milestone, but=trial.id)
        verdict = rule.judge(
            metric=objective.metric,
            direction=objective.direction,
            milestone=milestone,
            step=step,
            curve=curve,
            peers=peers,
            completed_count=completed_count,
        )
        if verdict is not None:
            _record(held, verdict)


def _reach(held: Held, milestone: int, value: float) -> bool:
    """False when an earlier attempt had reached the milestone already."""
    key = (held.experiment.id, milestone, held.trial.id)
    if held.session.get(MilestoneRow, key) is not None:
        return False
    held.session.add(
        MilestoneRow(experiment_id=held.experiment.id, milestone=milestone, trial_id=held.trial.id, value=value)
    )
    return True


def _history(held: Held) -> tuple[dict[int, float], int]:
    completed = counts_by_status(held.session, held.experiment.id)[TrialStatus.COMPLETED]
    return curve_of(held.session, held.trial.id), completed


def _record(held: Held, verdict: Verdict) -> None:
    facts = {
        "decision": "stop" if verdict.stop else "continue",
        "rule": verdict.rule,
        "metric": held.spec.objective.metric,
        "step": verdict.step,
        "milestone": verdict.milestone,
        "value": verdict.value,
        "cutoff": verdict.cutoff,
        "compared_count": verdict.compared_count,
        "reason": verdict.reason,
    }
    held.session.add(DecisionRow(trial_id=held.trial.id, attempt=held.attempt.number, at=held.now, **facts))
    data = {"attempt": held.attempt.number, **facts}
    append_event(held.session, held.experiment, "decision", data, at=held.now, trial_id=held.trial.id)
    if verdict.stop:
        ask_to_stop(held.trial, StopCause.EARLY_STOPPING, verdict.reason)
