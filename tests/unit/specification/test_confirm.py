"""What `confirm` needs of a specification."""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.parser import parse_spec
from tests.conftest import a_spec

PBT = {"rule": "pbt", "interval": 2, "max_step": 6}
COMMAND = {"kind": "command", "command": ["train", "{config.seed}"]}
KEEPS_ONE = {"checkpoints": {"keep_best_trials": 1}, "trainer": COMMAND}


def a_spec_with(**changes: Any) -> dict[str, Any]:
    return a_spec(**{"confirm": {"top": 2, "seeds": 3}, "limits": {"max_trials": 10}} | changes)


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"confirm": {"top": 0}}, "confirm.top", "greater than or equal to 1"),
        ({"confirm": {"seeds": 1}}, "confirm.seeds", "greater than or equal to 2"),
        ({"confirm": {"top": 3, "seeds": 3}}, "confirm", "set max_trials to at least 12"),
        ({"early_stopping": PBT}, "confirm", "does not work with pbt"),
        ({"config": {"seed": "x"}}, "config.seed", "must be a whole number"),
        ({"config": {"seed": -1}}, "config.seed", "must be a whole number"),
        ({"space": {"seed": {"type": "int", "low": 0, "high": 9}}}, "space.seed", "rename the parameter"),
        (
            {"checkpoints": {"keep_best_trials": 1}, "trainer": COMMAND},
            "checkpoints.keep_best_trials",
            "must be confirm.top (2) or more",
        ),
        ({"enqueue": [{"lr": 0.1}] * 5}, "enqueue", "more than the 4 trials that confirm leaves"),
        ({"objectives": [{"metric": m, "direction": "minimize"} for m in "ab"]}, "confirm", "one objective only"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_spec(a_spec_with(**changes))
    found = {mistake.where: mistake.message for mistake in refused.value.mistakes}
    assert message in found[path]


def test_the_search_sees_the_budget_without_the_confirmations() -> None:
    spec = parse_spec(a_spec_with())
    assert (spec.max_search_trials, spec.problem.max_trials) == (4, 4)
    plain = parse_spec(a_spec())
    assert (plain.max_search_trials, plain.problem.max_trials) == (10, 10)


def test_it_confirms_the_best_three_with_three_seeds_by_default() -> None:
    confirm = parse_spec(a_spec_with(confirm={}, limits={"max_trials": 12})).confirm
    assert confirm is not None
    assert (confirm.top, confirm.seeds) == (3, 3)


def test_a_command_can_name_the_seed() -> None:
    assert parse_spec(a_spec_with(trainer=COMMAND)).confirm
    with pytest.raises(Invalid, match="the config has no 'seed'"):
        parse_spec(a_spec(trainer=COMMAND))


@pytest.mark.parametrize("limit", ["max_seconds", "max_gpu_hours"])
def test_a_limit_of_the_whole_experiment_is_a_warning(limit: str) -> None:
    trainer = {"kind": "external", "scaling": {"use_gpu": True}}
    [warning] = parse_spec(a_spec_with(trainer=trainer, limits={"max_trials": 10, limit: 60})).warnings
    assert warning.where == f"limits.{limit}"
