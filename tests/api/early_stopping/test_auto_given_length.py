"""`early_stopping: {rule: auto, max_step: N}`: the service chooses a rule before any trial has run to its end."""

from typing import Any

import pytest
from sqlalchemy import select

from service.store.tables import ExperimentRow
from tests.api.early_stopping.chosen_rules import LIMITS, STEPS, STOPPING, chosen, created, ran, rule, takes
from tests.api.early_stopping.promotion import experiment, given, patched, trials
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

PROMOTING_AFTER_END = STOPPING | {"promote": True}
"""From the first trial on that has run to its end, no additional one passes each rung."""
PROMOTING = PROMOTING_AFTER_END | {"extra_count": 1}
LOWEST, HIGHEST = 14, 180
"""Seeds with which the first trials are in the lowest bracket, or the first one in that of whole trials."""


def with_length(service: Api, max_step: int = STEPS, *, seed: int = LOWEST, **changes: Any) -> dict[str, Any]:
    rule = {"rule": "auto", "max_step": max_step}
    limits = LIMITS | {"parallelism": 3}
    search = {"sampler": "auto", "seed": seed}
    return created(service, **{"search": search, "early_stopping": rule, "limits": limits} | changes)


def led(service: Api, name: str) -> Held:
    """The first trial, which is the best one so far, and goes on after its first step."""
    held = given(service, name)
    assert held.report(accuracy=0.9, checkpoint=f"/{held.trial}/1")["decision"] == "continue"
    return held


def trained(
    service: Api, name: str, last_step: int, *, saves_every: int | None = 1, start: float = 1.0, value: float = 0.5
) -> str:
    """Run a trial up to that step, or to its pause; returns its status."""
    held = given(service, name)
    resume = held.assignment["resume"]
    for step in range(resume["step"] + 1 if resume else 1, last_step + 1):
        saves = saves_every is not None and step % saves_every == 0
        if held.report(accuracy=value, checkpoint=f"/{held.trial}/{step}" if saves else None)["decision"] == "stop":
            break
    takes(held, start)
    return str(held.finish("stopped")["status"])


def test_the_first_trial_is_spared_where_many_run_at_the_same_time(service: Api) -> None:
    shown = with_length(service, limits={"max_trials": 30, "parallelism": 5})
    name = shown["name"]
    assert rule(service, name) == PROMOTING_AFTER_END | {"whole_count": 1}
    first, second = given(service, name), given(service, name)
    for step in range(1, STEPS):
        assert first.report(accuracy=0.1, checkpoint=f"/{first.trial}/{step}")["decision"] == "continue"
    assert second.report(accuracy=0.05, checkpoint=f"/{second.trial}/1")["decision"] == "stop"
    reasons = [one["reason"] for one in service.get(f"/v1/trials/{first.trial}/decisions")["items"]]
    assert all(one.endswith("; the first trial runs to the end") for one in reasons)


def test_the_word_auto_needs_no_name_of_a_rule(service: Api) -> None:
    shown = created(service, early_stopping={"max_step": STEPS})
    assert rule(service, shown["name"]) == PROMOTING
    own = created(service, early_stopping={"rule": "median"})
    assert own["spec"]["early_stopping"]["rule"] == "median"


@pytest.mark.databases("sqlite", "postgresql")
def test_a_rule_is_chosen_at_the_submission(service: Api) -> None:
    shown = with_length(service)
    name = shown["name"]
    assert rule(service, name) == PROMOTING
    assert shown["spec"]["early_stopping"]["rule"] == "hyperband"
    why = "max_step is 9; trials that fall behind from step 1 on are paused, and may be promoted later"
    assert shown["early_stopping"]["why"] == why
    [event] = chosen(service, name)
    assert (event["training"]["max_step"], event["training"]["report_count"]) == (STEPS, 0)
    assert "stopped early" in event["sampler"]["why"]
    previewed = service.post(
        "/v1/spaces/preview",
        json={key: shown["spec"][key] for key in ("space", "limits", "search")}
        | {"early_stopping": {"rule": "auto", "max_step": STEPS}},
    )
    assert previewed["early_stopping"] == shown["early_stopping"]
    led(service, name)
    assert trained(service, name, STEPS) == "paused"
    assert rule(service, name) == PROMOTING


def test_trials_are_stopped_where_one_has_saved_no_checkpoint(service: Api) -> None:
    """The paused one continues, and later ones that save checkpoints are paused again."""
    name = with_length(service)["name"]
    led(service, name)
    assert trained(service, name, 1, saves_every=None) == "queued"
    assert rule(service, name) == STOPPING
    assert "it saved no checkpoint to continue from" in experiment(service, name)["early_stopping"]["why"]
    trained(service, name, 3, saves_every=3)
    assert rule(service, name) == PROMOTING_AFTER_END | {"min_step": 3}
    assert [one["training"]["last_step"] for one in chosen(service, name)] == [0, 1, 3]


def test_trials_are_stopped_where_starts_are_dear(service: Api) -> None:
    """Measured by the first attempt with two reports; a cheap start later changes it again."""
    name = with_length(service, 27)["name"]
    led(service, name)
    assert trained(service, name, 1) == "paused"
    assert rule(service, name) == PROMOTING | {"max_step": 27}
    trained(service, name, 3, start=500, value=0.7)
    assert rule(service, name) == STOPPING | {"max_step": 27}
    why = "because a restart takes 500 s, more than half of a whole training (270 s)"
    assert why in experiment(service, name)["early_stopping"]["why"]
    trained(service, name, 6, start=1)
    assert rule(service, name) == PROMOTING_AFTER_END | {"max_step": 27}


def test_an_earlier_version_reads_no_part_of_a_training_as_a_whole_one(service: Api) -> None:
    """It knows `training` alone, which stays null."""
    name = with_length(service)["name"]
    led(service, name)
    trained(service, name, 1)
    with service.app.state.context.database.read() as session:
        [choice] = session.scalars(select(ExperimentRow.rule_choice).where(ExperimentRow.name == name))
    assert choice["training"] is None
    assert chosen(service, name)[-1]["training"]["number"] == 1


@pytest.mark.parametrize(
    ("actual", "wanted"),
    [(3 * STEPS, 3 * STEPS), (STEPS + 1, STEPS), (STEPS - 3, STEPS)],
    ids=["much longer", "longer", "shorter"],
)
def test_only_a_much_longer_trial_replaces_the_given_length(service: Api, actual: int, wanted: int) -> None:
    """A lowest rung that moved by a step would have all trials continue that are paused below it."""
    name = with_length(service, seed=HIGHEST)["name"]
    ran(given(service, name), steps=actual, saves_every=1)
    assert rule(service, name) == PROMOTING_AFTER_END | {"max_step": wanted}


@pytest.mark.parametrize(
    ("steps", "wanted", "why"),
    [
        ([10], {"rule": "hyperband", "max_step": 27, "min_step": 10, "weighted": True}, "it saved no checkpoint"),
        ([1, 15], {"rule": "none"}, "made 2 reports up to step 15; trials are compared from 3 reports"),
        ([1, 5], {"rule": "hyperband", "max_step": 27, "min_step": 2, "weighted": True}, "it saved no checkpoint"),
    ],
)
def test_the_reports_of_a_part_are_counted_for_a_whole_training(
    service: Api, steps: list[int], wanted: dict[str, Any], why: str
) -> None:
    """A single one does not tell how often trials report."""
    name = with_length(service, 27, step_metric="step")["name"]
    held = given(service, name)
    for step in steps:
        held.report(step=step, accuracy=0.9)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")
    assert rule(service, name) == wanted
    assert why in experiment(service, name)["early_stopping"]["why"]


def resumed_length(service: Api, **changes: Any) -> dict[str, Any]:
    """Epochs are given, and steps continue those of an earlier training."""
    return with_length(service, step_metric="step", seed=HIGHEST, **changes)


@pytest.mark.parametrize("first", [10, 1], ids=["first report beyond it", "few reports"])
def test_a_length_that_no_trial_reports_within_is_not_used(service: Api, first: int) -> None:
    name = resumed_length(service)["name"]
    held = given(service, name)
    for step in (first, 20, 26):
        held.report(step=step, accuracy=0.5)
    held.finish()
    assert trials(service, name)[0]["status"] == "completed"
    assert rule(service, name)["max_step"] == (26 if first == 10 else STEPS)
    patched(service, name, early_stopping={"rule": "auto", "max_step": STEPS + 1})
    assert rule(service, name)["max_step"] >= STEPS


def test_a_short_trial_that_ends_does_not_replace_what_a_longer_one_has_shown(service: Api) -> None:
    name = with_length(service, 27)["name"]
    led(service, name)
    trained(service, name, 9, value=0.95)
    before = experiment(service, name)["early_stopping"]
    short = given(service, name)
    short.report(accuracy=0.95)
    short.finish()
    assert experiment(service, name)["early_stopping"] == before


def test_a_known_start_is_kept_when_a_later_attempt_does_not_show_it(service: Api) -> None:
    name = with_length(service, 9)["name"]
    held = led(service, name)
    for step in range(2, 4):
        held.report(accuracy=0.9, checkpoint=f"/{held.trial}/{step}")
    takes(held, 500)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")
    assert rule(service, name) == STOPPING
    again = given(service, name)
    for step in range(1, 9):
        again.report(accuracy=0.95, checkpoint=f"/{again.trial}/{step}")
    again.fail("lost")
    resumed = given(service, name)
    resumed.report(accuracy=0.95, checkpoint=f"/{resumed.trial}/9")
    resumed.finish()
    assert rule(service, name) == STOPPING
    assert "a restart takes 500 s" in experiment(service, name)["early_stopping"]["why"]


def test_a_length_far_beyond_that_of_trials_is_doubted(service: Api) -> None:
    name = with_length(service, 1000, seed=HIGHEST)["name"]
    ran(given(service, name), saves_every=1)
    why = experiment(service, name)["early_stopping"]["why"]
    assert "up to step 9 (its last one: too early to be compared, so max_step may be wrong)" in why


def test_the_same_length_again_forgets_nothing(service: Api) -> None:
    name = with_length(service)["name"]
    led(service, name)
    trained(service, name, 1, saves_every=None)
    before = experiment(service, name)["early_stopping"]
    patched(service, name, early_stopping={"rule": "auto", "max_step": STEPS})
    assert experiment(service, name)["early_stopping"] == before


def test_two_steps_are_too_few(service: Api) -> None:
    shown = with_length(service, 2)
    assert rule(service, shown["name"]) == {"rule": "none"}
    assert shown["early_stopping"]["why"] == "max_step is 2; trials are compared from 3 reports and 3 steps on"


def test_the_length_is_kept_while_a_small_budget_forbids_to_stop_trials(service: Api) -> None:
    name = with_length(service, limits={"max_trials": 9})["name"]
    assert rule(service, name) == {"rule": "none"}
    patched(service, name, limits={"max_trials": 30})
    assert rule(service, name) == PROMOTING
    assert chosen(service, name)[-1]["training"]["max_step"] == STEPS


@pytest.mark.databases("sqlite", "postgresql")
def test_the_length_can_be_given_and_withdrawn_later(service: Api) -> None:
    name = created(service)["name"]
    held = given(service, name)
    held.report(accuracy=0.5, checkpoint="/1")
    patched(service, name, early_stopping={"rule": "auto", "max_step": STEPS})
    assert rule(service, name) == PROMOTING
    assert [one["training"] and one["training"]["max_step"] for one in chosen(service, name)] == [None, STEPS]
    patched(service, name, early_stopping={"rule": "auto"})
    assert rule(service, name) == {"rule": "auto"}
    assert chosen(service, name)[-1]["training"] is None
    held.finish()
    patched(service, name, early_stopping={"rule": "auto", "max_step": 3 * STEPS})
    assert "trial 0 made 1 report up to step 1" in experiment(service, name)["early_stopping"]["why"]
    assert trials(service, name)[0]["status"] == "completed"


def test_a_failed_trial_shows_nothing(service: Api) -> None:
    name = with_length(service)["name"]
    failed = given(service, name)
    failed.report(accuracy=0.5)
    failed.fail()
    assert len(chosen(service, name)) == 1


def test_a_length_below_one_is_refused(service: Api) -> None:
    refused = service.post(
        "/v1/experiments", 422, json={"name": "none", "early_stopping": {"rule": "auto", "max_step": 0}}
    )
    assert any(mistake["path"] == "early_stopping.max_step" for mistake in refused["errors"])
