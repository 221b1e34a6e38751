"""A rule of another package that fails at a trial's end, retry or pause: nothing else is lost or wrong in the store."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, cast

import pytest

from search.early_stopping import AT_END, COMPLETED, MetricReport, Verdict
from search.early_stopping.history import ALL, History
from search.early_stopping.rule import StoppingRule
from search.early_stopping.rules.wrappable_rules import PLUGINS
from service.domain.statuses import TrialStatus
from service.operations.early_stopping.decisions import Decider
from service.operations.early_stopping.paused_trials import release
from service.operations.locked_experiment import LockedExperiment
from service.runtime.observations.observations import observation_of
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.measured_trial import MeasuredTrial
from tests.conftest import a_spec
from tests.store.stored_experiment import NOW, StoredExperiment, stored_experiment


class Unprintable(Exception):
    def __str__(self) -> str:
        raise AttributeError("no detail")

    def __repr__(self) -> str:
        return "unprintable"


FAILURES = [RuntimeError("no licence"), Unprintable(), SystemExit(3), math.nan, "text", 10**5000]


def short(value: object) -> str:
    return "huge" if isinstance(value, int) else repr(value)


class Failing(StoppingRule):
    """Pauses every trial at step 2. The hooks in `answers` answer so, or raise it."""

    rule: Literal["failing"] = "failing"
    answers: ClassVar[dict[str, Any]] = {}

    def _answer(self, hook: str, usual: Any) -> Any:
        answer = self.answers.get(hook, usual)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def compares_completed(self) -> bool:
        return cast("bool", self._answer("compares_completed", usual=True))

    @property
    def pauses(self) -> bool:
        return cast("bool", self._answer("pauses", usual=True))

    @property
    def paused_trials_lose(self) -> bool:
        return cast("bool", self._answer("paused_trials_lose", usual=False))

    def pool_of(self, number: int, bracket: int | None = None) -> int:  # noqa: ARG002
        return cast("int", self._answer("pool_of", ALL))

    def pool_at(self, milestone: int, number: int, bracket: int | None = None) -> int:  # noqa: ARG002
        return ALL

    def value_at_end(self, last_value: float, history: History) -> float:  # noqa: ARG002
        return cast("float", self._answer("value_at_end", last_value))

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        return [report.step]

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:  # noqa: ARG002
        pauses = report.step == 2
        grounds: dict[str, Any] = {"milestone": milestone, "value": report.value, "cutoff": None, "compared_count": 0}
        return Verdict(rule="failing", step=report.step, stop=pauses, pauses=pauses, reason="its turn", **grounds)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(PLUGINS.kinds, "failing", Failing)
    found: dict[str, Any] = {}
    monkeypatch.setattr(Failing, "answers", found)
    return found


@pytest.fixture
def experiment(database_url: str) -> Iterator[StoredExperiment]:
    with stored_experiment(database_url) as found:
        yield found


def spec() -> ExperimentSpec:
    objectives = [{"metric": "accuracy", "direction": "maximize"}]
    return parse_spec(a_spec(objectives=objectives)).model_copy(update={"early_stopping": Failing()})


def decider(experiment: StoredExperiment) -> Decider:
    row = experiment.session.get_one(ExperimentRow, "x-0")
    return Decider(LockedExperiment(experiment.session, row, NOW), spec())


def report(experiment: StoredExperiment, number: int, step: int) -> TrialRow:
    experiment.report(number, step, 0.5)
    trial = experiment.trials[number]
    decider(experiment).judge(trial, step, {"accuracy": 0.5})
    experiment.session.flush()
    return trial


def peers(experiment: StoredExperiment, milestone: int, pool: int) -> list[int]:
    return [one.number for one in experiment.of(2).peers(milestone, pool).ranked("maximize", 0, 10)]


@pytest.mark.parametrize("failure", FAILURES, ids=short)
def test_a_trial_without_a_value_at_its_end_is_not_among_the_completed_ones(
    experiment: StoredExperiment, answers: dict[str, Any], failure: object
) -> None:
    trial = report(experiment, 0, 1)
    answers["value_at_end"] = failure
    decider(experiment).record_end(trial)
    assert (peers(experiment, 1, COMPLETED), peers(experiment, 1, ALL)) == ([], [0])
    decider(experiment).withdraw_end(trial)
    assert (peers(experiment, 1, COMPLETED), peers(experiment, 1, ALL)) == ([], [0])


@pytest.mark.parametrize("hook", ["pool_of", "compares_completed", "value_at_end"])
@pytest.mark.parametrize("failure", FAILURES, ids=short)
def test_a_retried_trial_is_not_among_the_completed_ones(
    experiment: StoredExperiment, answers: dict[str, Any], hook: str, failure: object
) -> None:
    trial = report(experiment, 0, 1)
    decider(experiment).record_end(trial)
    assert peers(experiment, 1, COMPLETED) == peers(experiment, AT_END, COMPLETED) == [0]
    answers[hook] = failure
    decider(experiment).withdraw_end(trial)
    assert peers(experiment, 1, COMPLETED) == peers(experiment, AT_END, COMPLETED) == []
    assert peers(experiment, 1, ALL) == [0]


@pytest.mark.parametrize("failure", [*FAILURES, 1.5], ids=short)
def test_a_trial_without_a_pool_to_wait_in_goes_on(
    experiment: StoredExperiment, answers: dict[str, Any], failure: object, caplog: pytest.LogCaptureFixture
) -> None:
    answers["pool_of"] = failure
    trial = report(experiment, 0, 2)
    assert (trial.stop_cause, trial.paused_milestone) == (None, None)
    assert "the rule failing failed on trial t-0 at step 2" in caplog.text
    answers.clear()
    paused = report(experiment, 1, 2)
    assert (paused.stop_cause, paused.paused_milestone, paused.paused_pool) == ("paused", 2, ALL)


@pytest.mark.parametrize("failure", FAILURES, ids=short)
def test_a_rule_that_cannot_say_whether_it_pauses_releases_no_trial(
    experiment: StoredExperiment, answers: dict[str, Any], failure: object
) -> None:
    answers["pauses"] = failure
    assert release(decider(experiment)) is False


@pytest.mark.parametrize("failure", FAILURES, ids=short)
def test_a_paused_trial_has_lost_if_the_rule_cannot_say(answers: dict[str, Any], failure: object) -> None:
    facts = {"number": 0, "params": {}, "stop_cause": None, "failure_kind": None, "last_step": 2}
    trial = SimpleNamespace(**facts, status=TrialStatus.PAUSED, value=0.5, values=None)
    assert observation_of(spec(), cast("MeasuredTrial", trial)).status == "running"
    answers["paused_trials_lose"] = failure
    assert observation_of(spec(), cast("MeasuredTrial", trial)).status == "pruned"
