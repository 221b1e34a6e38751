"""Promotion and population-based training are recomputed from the events: each decision changed by hand is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.audit.decisions import facts
from tests.chaos.audit.population import population
from tests.chaos.audit.promotion import promotion
from tests.chaos.evidence.snapshot import Event, Experiment, Trial
from tests.chaos.experiments import Planned
from tests.chaos.experiments import climb as climb_spec
from tests.chaos.experiments import population as population_spec

Events = list[Event]
Change = Callable[[Events], Events]


class Log:
    """The events of an experiment. Those that are added together are of one transaction."""

    def __init__(self, params: dict[int, dict[str, float]]) -> None:
        self.events: Events = []
        for number, one in params.items():
            self.add(("trial.created", number, {"number": number, "params": one}))
            self.add(("trial.running", number, {"attempt": 1}))

    def add(self, *events: tuple[str, int, dict[str, Any]]) -> None:
        at = 1000.0 + len(self.events)
        for kind, number, data in events:
            self.events.append(Event(len(self.events) + 1, kind, f"t-{number}", data, at))

    def arrive(self, number: int, step: int, value: float, decision: dict[str, Any]) -> None:
        saved = {"step": step, "uri": f"/{number}/{step}"}
        report = {"step": step, "metrics": {"loss": value}}
        self.add(("report", number, report), ("decision", number, decision), ("checkpoint", number, saved))

    def experiment(self, planned: Planned) -> Experiment:
        numbers = sorted({event.trial or "" for event in self.events})
        trials = [
            Trial(name, number, {}, "completed", "completed", None, [], [], [], [], [], [])
            for number, name in enumerate(numbers)
        ]
        return Experiment(
            id="x-1",
            name="one",
            spec=dict(planned.spec),
            expected=planned.expected,
            status="completed",
            end_reason="max_trials",
            event_count=len(self.events),
            trials=trials,
            events=self.events,
            shown_events=[],
            mirror_experiments=1,
            parents=[],
            foreign=[],
        )


def promoted() -> Experiment:
    """Three trials at the rungs 2 and 4: the second passes the first rung, and is promoted at the next one."""
    log = Log({0: {"x": 0.1}, 1: {"x": 0.2}, 2: {"x": 0.3}})
    log.arrive(0, 2, 0.5, facts("pause", 2, 0.5, None, 0))
    log.add(("trial.paused", 0, {}))
    log.arrive(1, 2, 0.4, facts("continue", 2, 0.4, 0.4, 1))
    log.arrive(1, 4, 0.3, facts("pause", 4, 0.3, None, 0))
    log.add(("trial.paused", 1, {}))
    log.arrive(2, 2, 0.6, facts("pause", 2, 0.6, 0.4, 2))
    promotion_of_1 = ("decision", 1, facts("promote", 4, 0.3, 0.3, 0))
    log.add(("trial.paused", 2, {}), promotion_of_1, ("trial.queued", 1, {}))
    log.add(("trial.running", 1, {"attempt": 2}))
    log.add(("trial.completed", 1, {}))
    return log.experiment(climb_spec("climb", "/journal", seed=1, trials=3, parallelism=3))


def exchanged() -> Experiment:
    """Two members, of which the worse one continues from the better one's checkpoint with perturbed params."""
    better, worse = {"x": 0.25, "bend": 1.0}, {"x": 0.75, "bend": 0.5}
    log = Log({0: better, 1: worse})
    log.arrive(1, 4, 0.9, facts("pause", 4, 0.9, None, 0))
    log.add(("trial.paused", 1, {}))
    log.arrive(0, 4, 0.2, facts("pause", 4, 0.2, None, 0))
    saved = {"uri": "/0/4", "step": 4}
    log.add(
        ("trial.paused", 0, {}),
        ("decision", 0, facts("continue", 4, 0.2, 0.2, 1)),
        ("trial.queued", 0, {}),
        ("decision", 1, facts("exploit", 4, 0.9, 0.2, 1)),
        ("trial.exploited", 1, {"donor": 0, "params": {"x": 0.125, "bend": 0.5}, "checkpoint": saved}),
        ("trial.queued", 1, {}),
    )
    planned = population_spec("population", "/journal", seed=1, trials=2, parallelism=2)
    factors = {"quantile": 0.5, "resample_probability": 0.0, "perturbation_factors": [0.5]}
    rule = {**planned.spec["early_stopping"], **factors}
    return log.experiment(replace(planned, spec={**planned.spec, "early_stopping": rule}))


def changed(which: str, /, **data: Any) -> Change:
    """Other facts in the last decision of a kind."""

    def change(events: Events) -> Events:
        last = max(event.seq for event in events if event.data.get("decision") == which)
        return [replace(one, data={**one.data, **data}) if one.seq == last else one for one in events]

    return change


def without(kind: str, decision: str | None = None) -> Change:
    """A run without the last event of a kind."""

    def change(events: Events) -> Events:
        last = max(one.seq for one in events if (one.kind, one.data.get("decision")) == (kind, decision))
        return [one for one in events if one.seq != last]

    return change


def before(decision: str) -> Change:
    """Only what comes before the decision."""

    def change(events: Events) -> Events:
        first = min(one.seq for one in events if one.data.get("decision") == decision)
        return [one for one in events if one.seq < first]

    return change


def of_trial(number: int, decision: str) -> Change:
    """The decision is about another trial."""
    return lambda events: [
        replace(one, trial=f"t-{number}") if one.data.get("decision") == decision else one for one in events
    ]


def exploited(**data: Any) -> Change:
    return lambda events: [
        replace(one, data={**one.data, **data}) if one.kind == "trial.exploited" else one for one in events
    ]


PROMOTIONS: dict[str, tuple[Change, str]] = {
    "a decision is lost": (without("decision", "pause"), "was not judged"),
    "another cutoff": (changed("pause", cutoff=0.5), "it must be"),
    "a good one is paused": (changed("continue", decision="pause"), "it must be"),
    "a promotion is forgotten": (before("promote"), "waits at rung 4, though it is among the best"),
    "it continues without a decision": (without("decision", "promote"), "continues, and was not promoted"),
    "another one is promoted": (of_trial(2, "promote"), "the decision on trial 2 is"),
    "promoted, and not paused": (changed("promote", milestone=2), "was not paused there"),
}
EXCHANGES: dict[str, tuple[Change, str]] = {
    "a pause is lost": (without("decision", "pause"), "it must be"),
    "it ends early": (without("trial.paused"), "ends before trials [0] have reached it"),
    "the worse one goes on": (changed("exploit", decision="continue"), "it must be"),
    "an exploit is lost": (without("decision", "exploit"), "lacks decisions"),
    "another donor": (exploited(donor=1), "goes on with"),
    "other params": (exploited(params={"x": 0.2, "bend": 0.5}), "goes on with"),
    "another checkpoint": (exploited(checkpoint={"uri": "/0/2", "step": 2}), "goes on with"),
    "a generation never begins": (without("trial.exploited"), "did not begin its next generation"),
}


def test_promotions_by_the_rule_pass() -> None:
    assert list(promotion(promoted())) == []


def test_exchanges_by_the_rule_pass() -> None:
    assert list(population(exchanged())) == []


@pytest.mark.parametrize("what", PROMOTIONS)
def test_a_wrong_promotion_is_named(what: str) -> None:
    change, words = PROMOTIONS[what]
    good = promoted()
    violations = list(promotion(replace(good, events=change(good.events))))
    assert any(words in violation for violation in violations), violations


@pytest.mark.parametrize("what", EXCHANGES)
def test_a_wrong_exchange_is_named(what: str) -> None:
    change, words = EXCHANGES[what]
    good = exchanged()
    violations = list(population(replace(good, events=change(good.events))))
    assert any(words in violation for violation in violations), violations
