"""The contract of `search.early_stopping.rule`, tested for each registered early stopping rule.

A new rule is tested here as soon as it is in the registry. An option without a default needs a value in REQUIRED;
further options to test belong in VARIANTS.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from search.analysis.replay import Completion, Created, Event, RecordedReport, replay
from search.early_stopping import RULES, EarlyStoppingSpec, InMemoryHistory, MetricReport, Rule, Verdict
from search.early_stopping.bracket import Bracket
from search.early_stopping.compared_metric import ComparedMetric
from search.early_stopping.decision import MAX_COMPARED_WITH
from search.early_stopping.rules.wrappable_rules import PLUGINS
from search.problem import Direction
from search.space.space import Space

REQUIRED: dict[str, Any] = {"max_step": 20, "percentile": 25, "patience": 1, "interval": 4}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "asha": [{}, {"promote": True}, {"bootstrap_count": 2, "extra_count": 1}, {"max_step": 9, "min_step": 2}],
    "hyperband": [{}, {"promote": True}, {"weighted": True}, {"weighted": True, "promote": True}],
    "median": [{}, {"n_startup_trials": 1, "interval_steps": 3, "n_warmup_steps": 2}],
    "threshold": [{"lower": 0.2, "upper": 0.8}],
    "wilcoxon": [{}, {"p_threshold": 0.5}],
    "patient": [
        {},
        {"wrapped_rule": {"rule": "asha"}},
        {"wrapped_rule": {"rule": "median", "n_startup_trials": 1}},
    ],
}
METRIC = "accuracy"
TRIALS, STEPS = 14, 12
GRACE = 5
SEED = 1


def options_of() -> Iterator[Any]:
    for name, kind in RULES.items():
        required = {option: REQUIRED[option] for option in _required_options(name, kind)}
        for variant in VARIANTS.get(name, [{}]):
            yield pytest.param({"rule": name, **required, **variant}, id=f"{name} {variant or ''}".strip())


def _required_options(name: str, kind: type[Rule]) -> Sequence[str]:
    required = [option for option, field in kind.model_fields.items() if field.is_required()]
    if missing := [option for option in required if option not in REQUIRED]:
        raise LookupError(f"the options {missing} of the rule {name} need defaults, or values in REQUIRED")
    return required


every_rule = pytest.mark.parametrize("options", list(options_of()))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_registered_by_its_own_name(name: str) -> None:
    assert RULES[name].model_fields["rule"].default == name


def rule_of(options: dict[str, Any], **more: Any) -> Rule:
    rule: Rule = TypeAdapter(EarlyStoppingSpec).validate_python({**options, **more})
    return rule


def reports() -> Iterator[tuple[int, int, float]]:
    """Trials that run two at a time: each report's trial, step and value; the last step completes the trial."""
    random = np.random.default_rng(0)
    for first in range(0, TRIALS, 2):
        for step in range(1, STEPS + 1):
            for number in (first, first + 1):
                yield number, step, round(float(random.uniform(0, 1) * step / STEPS), 3)


def verdicts_of(rule: Rule, direction: Direction = "maximize", sign: int = 1) -> list[tuple[int, Verdict]]:
    """The verdicts, with the trial's number, on trials that stop or pause where the rule says so, and never resume."""
    history, found, ended = InMemoryHistory(), list[tuple[int, Verdict]](), set[int]()
    brackets: dict[int, Bracket | None] = {}
    for number, step, value in reports():
        if number in ended:
            continue
        if number not in brackets:
            brackets[number] = rule.draw_bracket(number, SEED, history)
        report = _report(history, number, step, sign * value, direction, brackets[number])
        verdicts = list(rule.decide(report, history.of(number)))
        found += [(number, verdict) for verdict in verdicts]
        if any(verdict.stop for verdict in verdicts):
            ended.add(number)
        elif step == STEPS:
            history.complete(rule, number, sign * value)
    return found


def _report(
    history: InMemoryHistory,
    number: int,
    step: int,
    value: float,
    direction: Direction = "maximize",
    bracket: Bracket | None = None,
) -> MetricReport:
    curve = history.curves[number]
    drawn = None if bracket is None else bracket.number
    report = MetricReport(number, METRIC, direction, step, value, max(curve, default=None), drawn)
    if step not in curve:
        curve[step] = value
    return report


@every_rule
def test_a_stored_rule_is_the_same_rule(options: dict[str, Any]) -> None:
    rule = rule_of(options)
    assert rule.rule == options["rule"]
    assert rule_of(rule.model_dump(mode="json")) == rule


@every_rule
def test_a_decision_is_a_function_of_the_history(options: dict[str, Any]) -> None:
    assert verdicts_of(rule_of(options)) == verdicts_of(rule_of(options))


@every_rule
def test_a_rule_stops_some_trial(options: dict[str, Any]) -> None:
    if "grace_steps" not in RULES[options["rule"]].model_fields or options["rule"] in PLUGINS.kinds:
        pytest.skip("never stops a trial, or is another package's, which cannot give options here")
    advice = f"the other tests would say nothing: give options in VARIANTS with which {options['rule']} stops a trial"
    assert any(verdict.stop for _, verdict in verdicts_of(rule_of(options))), advice


@every_rule
def test_the_direction_decides_what_is_better(options: dict[str, Any]) -> None:
    if options["rule"] == "threshold":
        pytest.skip("its bounds have no direction")
    mirrored = verdicts_of(rule_of(options), "minimize", sign=-1)
    assert [(number, one.milestone, one.stop) for number, one in mirrored] == [
        (number, one.milestone, one.stop) for number, one in verdicts_of(rule_of(options))
    ]


@every_rule
def test_a_verdict_explains_itself(options: dict[str, Any]) -> None:
    rule = rule_of(options)
    for number, verdict in verdicts_of(rule):
        assert verdict.rule == options["rule"]
        assert verdict.milestone <= verdict.step
        assert math.isfinite(verdict.value)
        assert verdict.cutoff is None or math.isfinite(verdict.cutoff)
        assert METRIC in verdict.reason
        assert len(verdict.compared_with) <= min(verdict.compared_count, MAX_COMPARED_WITH)
        assert number not in verdict.compared_with
        assert verdict.stop or not verdict.pauses
        assert rule.pauses or not verdict.pauses


@every_rule
def test_a_trial_is_judged_once_at_each_milestone_and_not_before_the_first(options: dict[str, Any]) -> None:
    rule, history, seen = rule_of(options), InMemoryHistory(), set[tuple[int, int]]()
    for number, step, value in reports():
        report = _report(history, number, step, value)
        milestones = rule.milestones(report, history.of(number))
        judged = [verdict.milestone for verdict in rule.decide(report, history.of(number))]
        assert set(judged) <= set(milestones)
        assert judged == sorted(judged)
        assert seen.isdisjoint((number, milestone) for milestone in judged)
        seen |= {(number, milestone) for milestone in judged}


@every_rule
def test_a_retry_that_repeats_steps_is_not_judged_again(options: dict[str, Any]) -> None:
    rule, history = rule_of(options), InMemoryHistory()
    for number, step, value in reports():
        list(rule.decide(_report(history, number, step, value), history.of(number)))
        if step == STEPS:
            for again in range(1, STEPS + 1):
                report = _report(history, number, again, value)
                assert list(rule.decide(report, history.of(number))) == []


@every_rule
def test_no_trial_is_stopped_before_its_grace_steps_are_over(options: dict[str, Any]) -> None:
    if "grace_steps" not in RULES[options["rule"]].model_fields:
        pytest.skip("never stops a trial")
    for _, verdict in verdicts_of(rule_of(options, grace_steps=GRACE)):
        assert not verdict.stop or verdict.step >= GRACE


@every_rule
def test_a_replay_stops_the_trials_that_the_rule_stopped(options: dict[str, Any]) -> None:
    rule = rule_of(options)
    if rule.pauses or rule.not_replayed:
        pytest.skip("a replay also resumes paused trials")
    events: list[Event] = []
    for number, step, value in reports():
        events += [Created(number)] if step == 1 else []
        events += [RecordedReport(number, step, value), *([Completion(number)] if step == STEPS else [])]
    space = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
    replayed = replay(rule, ComparedMetric(METRIC, "maximize"), space, events, seed=SEED)
    stops = {number: verdict for number, verdict in verdicts_of(rule) if verdict.stop}
    assert {number: one.stop for number, one in replayed.items() if one.stop} == stops
