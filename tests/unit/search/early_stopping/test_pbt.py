"""Population-based training: where trials pause, which exploit which donor, and with which params."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from search.early_stopping import EarlyStoppingSpec, InMemoryHistory, MetricReport, PausedTrial, Peer, Peers, Release
from search.early_stopping.rules.pbt import Pbt, changes_in_words
from search.problem import Direction
from search.space.space import Params, Space

SPACE = Space.model_validate({"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}})


@dataclass
class Population:
    """The paused trials, by milestone."""

    at: dict[int, list[PausedTrial]]
    space: Space = SPACE
    seed: int = 7
    direction: Direction = "minimize"
    metric: str = "loss"
    others_may_come: bool = False
    any_completed: bool = False
    asked: list[int] = field(default_factory=list)

    def milestones(self) -> Sequence[int]:
        return sorted(self.at)

    def members(self, milestone: int) -> Sequence[PausedTrial]:
        return self.at[milestone]

    def best(self, milestone: int, pool: int) -> Peer | None:
        raise NotImplementedError

    def peers(self, milestone: int, pool: int) -> Peers:
        raise NotImplementedError


def pbt(**options: Any) -> Pbt:
    return Pbt(**{"interval": 5, "max_step": 2**53, **options})


def member(number: int, value: float, lr: float = 0.1, saved_step: int | None = 5) -> PausedTrial:
    return PausedTrial(number, value, {"lr": lr}, saved_step)


def eight(**changes: Any) -> Population:
    """Trial 0 is the best, trial 7 the worst."""
    return Population({5: [member(number, number / 10, 10 ** -(number / 2)) for number in range(8)]}, **changes)


def released(population: Population, **options: Any) -> dict[int, Release]:
    return {one.number: one for one in pbt(**options).releases(population)}


def paused_at(rule: Pbt, *steps: int) -> list[int]:
    """The milestones at which a trial pauses that reports at these steps and is always resumed."""
    memory, before, found = InMemoryHistory(), None, []
    for step in steps:
        report = MetricReport(0, "loss", "minimize", step, 1.0, before)
        while verdicts := list(rule.decide(report, memory.of(0))):
            assert (verdicts[-1].stop, verdicts[-1].pauses) == (True, True)
            found.append(verdicts[-1].milestone)
            report = MetricReport(0, "loss", "minimize", step, 1.0, found[-1])
        before = step
    return found


@pytest.mark.parametrize(
    ("options", "steps", "expected"),
    [
        ({}, range(1, 17), [5, 10, 15]),
        ({}, [3, 12, 13], [10]),
        ({}, [5, 10**15 + 1], [5, 10**15]),
        ({"interval": 1}, [10**9], [10**9]),
        ({"interval": 2}, range(0, 20, 5), [4, 10, 14]),
        ({"max_step": 15}, range(1, 20), [5, 10]),
        ({"max_step": 16}, range(1, 20), [5, 10, 15]),
        ({"grace_steps": 6}, range(1, 17), [10, 15]),
        ({"grace_steps": 10}, range(1, 17), [10, 15]),
        ({"interval": 1, "max_step": 3}, range(6), [1, 2]),
        ({"interval": 10, "max_step": 100}, [25, 50, 75, 100], [20, 50, 70]),
        ({"interval": 10, "max_step": 99}, range(9, 109, 10), [10, 20, 30, 40, 50, 60, 70, 80]),
    ],
)
def test_a_trial_pauses_at_each_multiple_of_the_interval(
    options: dict[str, Any], steps: Iterable[int], expected: list[int]
) -> None:
    assert paused_at(pbt(**options), *steps) == expected


def test_a_retry_does_not_pause_again_at_a_milestone() -> None:
    memory = InMemoryHistory()
    assert list(pbt().decide(MetricReport(0, "loss", "minimize", 5, 1.0, None), memory.of(0)))
    assert not list(pbt().decide(MetricReport(0, "loss", "minimize", 5, 0.5, None), memory.of(0)))


def test_the_worst_exploit_the_best_and_the_others_resume_as_they_are() -> None:
    found = released(eight())
    assert {number: one.decision for number, one in found.items()} == dict.fromkeys(
        range(6), "continue"
    ) | dict.fromkeys((6, 7), "exploit")
    assert {found[6].donor, found[7].donor} <= {0, 1}
    assert (found[7].cutoff, found[7].compared_count, found[7].compared_with) == (0.5, 7, (0, 1, 2, 3, 4, 5, 6))
    assert found[0].reason == "loss 0 at step 5 is among the best 2 of 8; resumes as it is"
    assert found[3].reason == "loss 0.3 at step 5 is not among the worst 2 of 8; resumes as it is"


def test_the_reason_of_an_exploit_names_the_donor_and_the_changed_params() -> None:
    population = Population({10: [member(0, 0.9, 0.5), member(1, 0.2, 0.1, 9)]}, direction="minimize")
    release = released(population, quantile=0.5, resample_probability=0, perturbation_factors=[2.0])[0]
    assert release.params == {"lr": 0.2}
    assert release.reason == (
        "loss 0.9 at step 10 is among the worst 1 of 2; "
        "resumes from trial 1's checkpoint at step 9 (loss 0.2) with lr 0.2 (was 0.5)"
    )


def test_with_maximize_the_worst_have_the_lowest_values() -> None:
    found = released(eight(direction="maximize"))
    assert [number for number, one in found.items() if one.donor is not None] == [1, 0]
    assert {found[0].donor, found[1].donor} <= {6, 7}


def test_no_trial_resumes_while_others_may_come() -> None:
    assert released(eight(others_may_come=True)) == {}
    assert released(Population({})) == {}


def test_the_lowest_milestone_resumes_first() -> None:
    population = Population({10: [member(0, 0.1)], 5: [member(1, 0.2), member(2, 0.3)]})
    assert sorted(released(population)) == [1, 2]


def test_the_last_trial_of_a_population_resumes_as_it_is() -> None:
    [only] = released(Population({5: [member(3, 0.5)]})).values()
    assert (only.decision, only.cutoff, only.compared_count) == ("continue", None, 0)
    assert only.reason == "loss 0.5 at step 5 is the only one at the end of this generation; resumes as it is"


def test_trials_that_are_no_better_are_not_exploited() -> None:
    found = released(Population({5: [member(number, 0.5) for number in range(4)]}))
    assert {one.decision for one in found.values()} == {"continue"}
    assert found[3].reason.endswith(
        "is among the worst 1 of 4, but the best trials have the same value; resumes as it is"
    )


def test_trials_without_a_checkpoint_are_not_exploited() -> None:
    members = [member(number, number / 10, saved_step=None if number < 2 else 5) for number in range(8)]
    found = released(Population({5: members}))
    assert found[7].decision == "continue"
    assert found[7].reason == (
        "loss 0.7 at step 5 is among the worst 2 of 8, "
        "but the best of them saved no checkpoint (trials 0, 1); resumes as it is"
    )
    one_saved = [*members[:1], member(1, 0.1), *members[2:]]
    assert released(Population({5: one_saved}))[7].donor == 1


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40),
    st.floats(0.01, 0.5),
    st.sampled_from(["minimize", "maximize"]),
    st.integers(0, 2**31),
)
def test_in_any_population_the_worst_exploit_the_best(
    values: list[float], quantile: float, direction: Direction, seed: int
) -> None:
    members = [member(number, value, 10 ** -(number % 4)) for number, value in enumerate(values)]
    population = Population({5: members}, direction=direction, seed=seed)
    found = released(population, quantile=quantile)
    assert sorted(found) == list(range(len(values)))
    sign = 1 if direction == "minimize" else -1
    part = max(math.floor(len(values) * quantile), 1)
    exploits = {number: one for number, one in found.items() if one.decision == "exploit"}
    assert len(exploits) <= part
    for number, one in exploits.items():
        assert one.donor is not None
        assert sign * values[one.donor] < sign * values[number]
        assert found[one.donor].decision == "continue"
        assert sum(sign * value < sign * values[one.donor] for value in values) < part
        assert SPACE.mistakes_in(one.params or {}) == []
    assert released(Population({5: members[::-1]}, direction=direction, seed=seed), quantile=quantile) == found


def test_another_seed_or_milestone_draws_other_params() -> None:
    lrs = [
        released(Population({milestone: eight().at[5]}, seed=seed))[7].params
        for seed, milestone in [(7, 5), (8, 5), (7, 10)]
    ]
    assert len({str(one) for one in lrs}) == 3


def test_the_changed_params_are_listed_in_words() -> None:
    assert (
        changes_in_words({"a": 1, "b": "x", "c": 0.5}, {"a": 1, "b": "y", "d": 2})
        == 'b "y" (was "x"), d 2 (new), without c'
    )
    assert changes_in_words({"a": 1}, {"a": 1}) == "its own params"
    many: Params = {str(number): number for number in range(12)}
    assert changes_in_words({}, many).endswith("9 9 (new), 2 more")


@pytest.mark.parametrize(
    ("options", "path", "message"),
    [
        ({"interval": None}, "interval", "valid integer"),
        ({"interval": 0}, "interval", "greater than or equal to 1"),
        ({"quantile": 0}, "quantile", "greater than 0"),
        ({"quantile": 0.6}, "quantile", "less than or equal to 0.5"),
        ({"resample_probability": 1.5}, "resample_probability", "less than or equal to 1"),
        ({"perturbation_factors": []}, "perturbation_factors", "at least 1 entry"),
        ({"perturbation_factors": [0]}, "perturbation_factors.0", "greater than 0"),
        ({"max_step": 5}, "", "max_step must be above 5, where the first generation ends"),
        ({"generations": 3}, "generations", "the options of pbt: metric, direction, grace_steps"),
    ],
)
def test_a_mistake_in_the_rule_is_reported(options: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(EarlyStoppingSpec).validate_python({"rule": "pbt", "interval": 5, "max_step": 30, **options})
    [line] = refused.value.errors()
    assert ".".join(map(str, line["loc"])) == path
    assert message in line["msg"]


def test_the_registry_has_it_by_name() -> None:
    spec = TypeAdapter(EarlyStoppingSpec).validate_python({"rule": "pbt", "interval": 5, "max_step": 30})
    assert spec.pauses
