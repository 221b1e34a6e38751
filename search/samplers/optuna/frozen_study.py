"""A read-only study of Optuna over given trials."""

from collections.abc import Container, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from search.problem import Direction


def frozen_study(directions: Sequence[Direction], trials: Sequence[FrozenTrial]) -> optuna.Study:
    return optuna.create_study(storage=FrozenStorage(trials), directions=list(directions))


class FrozenStorage(optuna.storages.InMemoryStorage):
    """Shares the trials. Optuna's own storages copy each trial, which takes longer than reading them."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._frozen_trials = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002 (the trials never change)
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return [trial for trial in self._frozen_trials if states is None or trial.state in states]
