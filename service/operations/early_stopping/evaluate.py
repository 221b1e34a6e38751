"""The early stopping of a trial that runs, and of those that its report lets go on."""

from collections.abc import Mapping
from typing import Any

from service.operations.attempts.leases import Held
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import release
from service.operations.experiments.termination import is_open


def judge(held: Held, step: int, metrics: Mapping[str, Any]) -> None:
    """Judges what the trial has reported. Whoever reaches a milestone may have others earn their promotion there."""
    reached = [verdict.milestone for verdict in _decider(held).judge(held.trial, step, metrics)]
    if reached and is_open(held.experiment):
        release(held.session, held.experiment, held.spec, held.now, reached)


def note_completion(held: Held) -> None:
    """A trial that has completed is what some rules compare others with."""
    if held.spec.early_stopping.compares_completed:
        _decider(held).history(held.trial, held.trial.judged_step).complete()


def _decider(held: Held) -> Decider:
    return Decider(held.session, held.experiment, held.spec, held.now)
