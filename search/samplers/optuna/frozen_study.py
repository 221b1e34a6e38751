"""Trials that have ended, as a study of Optuna that can be looked at and not gone on with."""

from collections.abc import Container, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from search.problem import Direction


def study_of(directions: Sequence[Direction], trials: Sequence[FrozenTrial]) -> optuna.Study:
    return optuna.create_study(storage=Shown(trials), directions=list(directions))


class Shown(optuna.storages.InMemoryStorage):
    """It shares the trials: Optuna's own storages copy each one, which takes longer than looking at them."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._shown = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002 (nobody changes what is over)
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return [trial for trial in self._shown if states is None or trial.state in states]
