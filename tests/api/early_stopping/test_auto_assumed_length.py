"""`search: auto` with many trials at the same time: they are compared before one has run to its end."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from service.operations.early_stopping import recorded_milestones, rule_choice
from service.operations.early_stopping.paused_trials import RULE_CHANGED
from service.operations.reports.ingest import ReportBatch, ingest_reports
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, ExperimentRow, ReportRow
from tests.api.early_stopping.chosen_rules import STEPS, STOPPING, chosen, created, rule, takes
from tests.api.early_stopping.promotion import experiment, given, patched, resumed_at, trials
from tests.conftest import Api, Held
from trainer.wire import Report

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

WORKERS = 8
EARLY = {"rule": "hyperband", "weighted": True, "promote": True, "whole_count": 4}
ASSUMED = EARLY | {"max_step": 81, "min_step": 3}


def searching(service: Api, **limits: Any) -> str:
    name: str = created(service, limits={"max_trials": 60, "parallelism": WORKERS} | limits)["name"]
    return name


def reported(held: Held, steps: int, *, value: float = 0.5, saves: bool = True, start: float = 1.0) -> str:
    """Report so many steps of ten seconds each, after a start of so many seconds; returns the last decision."""
    decision = "continue"
    for _ in range(steps):
        step = resumed_at(held) + held.sequence + 1
        ten_seconds_pass(held, start)
        decision = str(held.report(accuracy=value, checkpoint=f"/{held.trial}/{step}" if saves else None)["decision"])
        if decision == "stop":
            break
    return decision


def ten_seconds_pass(held: Held, start: float) -> None:
    """The trial's start and its earlier reports are moved to the past."""
    with held.api.app.state.context.database.write() as session:
        now, own = database_now(session), select(AttemptRow).where(AttemptRow.trial_id == held.trial)
        rows = session.scalars(select(ReportRow).where(ReportRow.trial_id == held.trial).order_by(ReportRow.step)).all()
        for ago, row in enumerate(reversed(rows), 1):
            row.at = now - timedelta(seconds=10 * ago)
        attempt = session.scalars(own.order_by(AttemptRow.number.desc())).first()
        assert attempt
        attempt.started_at = now - timedelta(seconds=start + 10 * (len(rows) + 1))


def whole(held: Held, *, value: float = 0.9) -> None:
    """Train the trial, which is not asked to stop, to its end."""
    assert reported(held, STEPS - held.sequence, value=value) == "continue"
    takes(held, 1.0)
    assert held.finish()["status"] == "completed"


@pytest.mark.databases("sqlite", "postgresql")
def test_the_third_report_with_a_checkpoint_is_the_lowest_rung(service: Api) -> None:
    name = searching(service)
    first, *others = [given(service, name) for _ in range(WORKERS)]
    reported(first, 2, value=0.9)
    assert rule(service, name) == {"rule": "auto"}
    assert reported(first, 1, value=0.9) == "continue"
    assert rule(service, name) == ASSUMED
    why = (
        "no trial has run to the end yet, and trial 0 has come to step 3 with checkpoints, so a training is assumed to "
        "have 81 steps; trials that fall behind from step 3 on are paused, and may be promoted later"
    )
    assert experiment(service, name)["early_stopping"]["why"] == why
    event = chosen(service, name)[-1]
    assert (event["training"]["assumed_max_step"], event["training"]["trial_count"]) == (81, 0)
    lowest = [one for one in others[3:] if trial(service, one)["bracket"]["number"] == 0]
    assert [reported(one, 3, value=0.1 * rank) for rank, one in enumerate(lowest)][:2] == ["stop", "stop"]
    assert lowest[0].finish("stopped")["status"] == "paused"


def trial(service: Api, held: Held) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/v1/trials/{held.trial}")
    return found


def test_the_first_four_trials_go_on_whatever_they_report(service: Api) -> None:
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    reported(held[4], 3)
    for one in held[4:]:
        reported(one, 9 - one.sequence)
    for one in held[:4]:
        whole(one, value=0.0)


def test_the_first_whole_trial_shows_the_length(service: Api) -> None:
    name = searching(service)
    first, *others = [given(service, name) for _ in range(WORKERS)]
    reported(first, 3, value=0.9)
    whole(first)
    known = EARLY | {"max_step": STEPS, "min_step": 1}
    assert rule(service, name) == known
    made = "trial 0 made 9 reports up to step 9 and saved checkpoints"
    assert made in experiment(service, name)["early_stopping"]["why"]
    for one in others:
        if reported(one, STEPS) == "continue":
            takes(one, 1.0)
            one.finish()
    assert rule(service, name) == known
    rules = [event["early_stopping"]["options"]["rule"] for event in chosen(service, name)]
    assert rules == ["auto", "hyperband", "hyperband"]


def test_the_first_four_trials_show_that_early_ranks_tell_nothing(service: Api) -> None:
    """Trials that are paused by then continue."""
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    for rank, one in enumerate(held[:4]):
        reported(one, STEPS - 1, value=0.1 * rank)
    paused = next(one for one in held[4:] if trial(service, one)["bracket"]["number"] == 0)
    assert reported(paused, 3, value=0.0) == "stop"
    assert paused.finish("stopped")["status"] == "paused"
    for rank, one in enumerate(held[:4]):
        whole(one, value=0.9 - 0.1 * rank)
    assert rule(service, name) == {"rule": "none"}
    assert "did not predict their final ranking" in experiment(service, name)["early_stopping"]["why"]
    assert trial(service, paused)["status"] == "queued"


def test_a_training_without_checkpoints_shows_its_length_at_its_end(service: Api) -> None:
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    for one in held:
        reported(one, STEPS, saves=False)
    assert rule(service, name) == {"rule": "auto"}
    for one in held[:4]:
        takes(one, 1.0)
        one.finish()
    assert rule(service, name) == {"rule": "none"}  # these tie, so that ranks tell nothing


def test_a_rung_comes_not_before_it_is_worth_a_start(service: Api) -> None:
    name = searching(service)
    held = given(service, name)
    reported(held, 4, start=45)
    assert rule(service, name) == {"rule": "auto"}
    reported(held, 1, start=45)
    assert rule(service, name) == EARLY | {"max_step": 27 * 5, "min_step": 5}


def test_a_checkpoint_that_is_uploaded_later_counts(service: Api) -> None:
    name = searching(service)
    held = given(service, name)
    reported(held, 3, saves=False)
    assert rule(service, name) == {"rule": "auto"}
    held.sequence -= 1
    held.report(accuracy=0.5, checkpoint=f"/{held.trial}/3")
    assert rule(service, name) == ASSUMED


def test_four_trials_at_the_same_time_run_to_their_ends(service: Api) -> None:
    name = searching(service, parallelism=4)
    held = [given(service, name) for _ in range(4)]
    for one in held:
        assert reported(one, STEPS) == "continue"
    assert rule(service, name) == {"rule": "auto"}


def test_the_assumed_length_grows_with_the_trials(service: Api) -> None:
    """Trials that are paused below the new rungs continue."""
    name = searching(service)
    first, *others = [given(service, name) for _ in range(WORKERS)]
    reported(first, 3, value=0.9)
    kept, others = others[:3], others[3:]
    paused = next(one for one in others if trial(service, one)["bracket"]["number"] == 0)
    assert reported(paused, 3, value=0.05) == "stop"
    assert paused.finish("stopped")["status"] == "paused"
    others.remove(paused)
    while len(trials(service, name)) < 5 * WORKERS:
        assert rule(service, name) == ASSUMED
        left = others.pop(0)
        left.finish("stopped") if reported(left, 9, value=0.1) == "stop" else left.fail()
        others.append(given(service, name))
    assert rule(service, name) == ASSUMED
    kept[0].fail()
    assert rule(service, name) == EARLY | {"max_step": 243, "min_step": 9}
    assert trial(service, paused)["status"] == "queued"
    why = "so a training is assumed to have 243 steps; trials that fall behind from step 9 on are paused"
    assert why in experiment(service, name)["early_stopping"]["why"]


def test_a_long_history_is_not_read_while_a_report_waits(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice itself makes a history longer, so one that is just short enough may be too long then."""
    for longest in range(4, 40):
        monkeypatch.setattr(rule_choice, "MAX_LOCKED_EVENTS", longest)
        monkeypatch.setattr(recorded_milestones, "MAX_LOCKED_EVENTS", longest)
        name = searching(service)
        reported(given(service, name), 3)
        assert rule(service, name)["rule"] == ("auto" if longest < 20 else "hyperband")


def test_an_earlier_version_reads_no_assumed_length(service: Api) -> None:
    """It would take it for that of a whole trial."""
    name = searching(service)
    reported(given(service, name), 3)
    choice = stored_choice(service)
    assert choice["training"] is None
    assert choice["training_compared_early"]["assumed_max_step"] == 81


def test_a_rule_of_the_user_stays(service: Api) -> None:
    name = searching(service)
    held = given(service, name)
    patched(service, name, early_stopping=STOPPING)
    reported(held, 3)
    assert rule(service, name) == STOPPING


def test_fewer_trials_at_the_same_time_keep_the_choice(service: Api) -> None:
    name = searching(service)
    reported(given(service, name), 3)
    patched(service, name, limits={"max_trials": 60, "parallelism": 3})
    shown = rule(service, name)
    assert (shown["rule"], shown["max_step"]) == ("hyperband", 81)


def test_a_trial_that_was_paused_at_its_end_ends(service: Api) -> None:
    """Step 9 is a rung, and the rule does not know yet that it is the last step."""
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    for rank, one in enumerate(held[:4]):
        reported(one, STEPS, value=0.1 * rank)
    late = passed_the_lowest_rung(held)
    assert reported(late, STEPS - 3, value=0.9) == "stop"
    assert late.finish("stopped")["status"] == "paused"
    takes(held[3], 1.0)
    held[3].finish()
    assert rule(service, name) == EARLY | {"max_step": STEPS, "min_step": 1}
    queued = [event for event in service.events(name) if event["kind"] == "trial.queued"]
    assert [(event["trial"], event["data"]["reason"]) for event in queued] == [(late.trial, RULE_CHANGED)]


def passed_the_lowest_rung(held: list[Held]) -> Held:
    """A trial that is not one of the first four. Trials 1, 4 and 5 are in the lowest bracket, so one of them passes."""
    assert reported(held[4], 3, value=0.0) == "stop"
    held[4].finish("stopped")
    assert reported(held[5], 3, value=0.9) == "continue"
    return held[5]


def test_no_rule_is_chosen_while_the_experiment_ends(service: Api) -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.8}]
    name = created(service, objectives=objectives, limits={"max_trials": 60, "parallelism": WORKERS})["name"]
    held = given(service, name)
    reported(held, 2)
    ten_seconds_pass(held, 1.0)
    held.report(accuracy=0.9, checkpoint=f"/{held.trial}/3")
    assert experiment(service, name)["end_reason"] == "target_reached"
    assert rule(service, name) == {"rule": "auto"}


def test_the_length_is_corrected_while_the_last_trials_run(service: Api) -> None:
    """The space is exhausted, so no trial is created any more."""
    space = {"x": {"type": "int", "low": 1, "high": 12}}
    name = created(service, space=space, limits={"max_trials": None, "max_seconds": 9999, "parallelism": 16})["name"]
    held = [given(service, name) for _ in range(12)]
    reported(held[0], 3)
    assert rule(service, name) == ASSUMED
    assert service.http.post(f"/v1/experiments/{name}/ask").status_code != 200
    assert experiment(service, name)["end_reason"] == "space_exhausted"
    whole(held[0])
    assert rule(service, name) == EARLY | {"max_step": STEPS, "min_step": 1}


def test_the_first_of_several_trials_that_report_at_once_may_be_enough(service: Api) -> None:
    name = searching(service)
    first, second = given(service, name), given(service, name)
    reported(first, 2)
    ten_seconds_pass(first, 1.0)
    batches = [
        ReportBatch(one.trial, one.assignment["lease"]["token"], [Report(sequence=one.sequence, **metrics)])
        for one in (first, second)
        for metrics in [{"metrics": {"accuracy": 0.5}, "checkpoint": f"/{one.trial}/{one.sequence}"}]
    ]
    ingest_reports(service.app.state.context, batches)
    assert rule(service, name) == ASSUMED


@pytest.mark.parametrize("parallelism", [1, 100])
def test_the_assumed_length_does_not_follow_the_parallelism(service: Api, parallelism: int) -> None:
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    reported(held[0], 3)
    for _ in range(2 * WORKERS):
        held.pop().fail()
        held.append(given(service, name))
    assert rule(service, name) == ASSUMED
    patched(service, name, limits={"max_trials": 60, "parallelism": parallelism})
    held.pop().fail()
    assert rule(service, name)["max_step"] == 81


def test_a_whole_trial_that_is_shorter_than_the_running_ones_shows_the_length(service: Api) -> None:
    name = searching(service)
    first, second = given(service, name), given(service, name)
    reported(first, 5, saves=False)
    reported(first, 1)
    assert rule(service, name)["min_step"] == 6
    reported(second, 4)
    takes(second, 1.0)
    second.finish()
    assert rule(service, name) == EARLY | {"max_step": 4, "min_step": 1}


def test_only_the_first_four_trials_tell_whether_ranks_do(service: Api) -> None:
    """Others are chosen by their ranks."""
    name = searching(service)
    held = [given(service, name) for _ in range(WORKERS)]
    for rank, one in enumerate(held[:4]):
        reported(one, 3, value=0.1 * rank)
    other = passed_the_lowest_rung(held)
    assert reported(other, 2, value=0.9) == "continue"
    takes(other, 1.0)
    other.finish()
    for rank, one in enumerate(held[:3]):
        whole(one, value=0.1 * rank)
    known = stored_choice(service)["training_compared_early"]
    assert (known["trial_count"], known["concordances"]) == (3, {})


def stored_choice(service: Api) -> dict[str, Any]:
    with service.app.state.context.database.read() as session:
        choice: dict[str, Any] | None = session.scalars(select(ExperimentRow.rule_choice)).one()
    assert choice
    return choice
