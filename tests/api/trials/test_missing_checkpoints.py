"""A checkpoint is gone from the storage: which other one the trial continues from, and when it fails."""

from typing import Any

import pytest

from service.domain.retry_policy import MAX_LOSSES, MAX_MISSES
from service.store.checkpoints.missing_checkpoints import MISSES
from tests.api.early_stopping.population import Trainer, a_population, trials
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite", "postgresql")]
STORED = {"step_metric": "epoch", "checkpoints": {"keep": 3}, "limits": {"max_trials": 1}}
SAID = "NotThere: the checkpoint is not on the storage"


def given(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def resumed_from(held: Held) -> Any:
    return held.assignment["resume"] and held.assignment["resume"]["uri"]


def miss(service: Api, name: str, *, is_told: bool = True, times: int = MISSES) -> list[str]:
    """Attempts that do not find what they resume from; returns what that was."""
    tried = []
    for _ in range(times):
        held = given(service, name)
        tried.append(resumed_from(held))
        told = {"is_checkpoint_missing": True} if is_told else {}
        held.finish("failed", error={"kind": "lost", "message": SAID, **told})
    return tried


def listed(service: Api, trial: str) -> list[str]:
    """The checkpoints that the service knows of the trial."""
    return sorted(one["uri"] for one in service.get(f"/v1/trials/{trial}/checkpoints")["items"])


def saved(service: Api, steps: tuple[int, ...] = (1, 2, 3), **changes: Any) -> tuple[str, Held]:
    """An experiment, and its trial, whose first attempt has saved at these steps, and is lost."""
    name = service.create(**STORED | changes)["name"]
    first = given(service, name)
    for step in steps:
        first.report(epoch=step, accuracy=step / 10, checkpoint=f"/c/{step}")
    first.fail("lost", "the node is gone")
    return name, first


def test_a_trial_continues_from_an_older_checkpoint_when_two_attempts_have_missed_the_newest(service: Api) -> None:
    name, trial = saved(service)
    assert miss(service, name, times=1) == ["/c/3"]
    assert trial.shown()["reason"] == SAID
    assert miss(service, name, times=1) == ["/c/3"]
    assert trial.shown()["reason"] == (
        f"{SAID}; 2 attempts have missed the checkpoint of step 3, so the trial continues from that of step 2"
    )
    later = given(service, name)
    assert later.assignment["resume"] == {"uri": "/c/2", "step": 2}
    later.report(epoch=3, accuracy=0.9)
    later.report(epoch=4, accuracy=0.4)
    later.finish()
    shown = trial.shown()
    assert (shown["status"], shown["value"]) == ("completed", 0.4)
    assert [one["resumed_step"] for one in shown["attempts"]] == [None, 3, 3, 2]
    points = service.get(f"/v1/trials/{trial.trial}/reports")["items"]
    assert [(one["step"], one["attempt"], one["metrics"]["accuracy"]) for one in points] == [
        (1, 1, 0.1),
        (2, 1, 0.2),
        (3, 1, 0.3),
        (4, 4, 0.4),
    ]
    steps = [event["data"]["step"] for event in service.events(name) if event["kind"] == "report"]
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("again", [0.01, 0.9])
def test_milestones_that_are_passed_again_count_once_and_decide_as_before(service: Api, again: float) -> None:
    rule = {"rule": "asha", "reduction_factor": 3}
    name, trial = saved(service, early_stopping=rule, limits={"max_trials": 2})
    path = f"/v1/trials/{trial.trial}/decisions"
    decided = service.get(path)["items"]
    assert [(one["milestone"], one["decision"]) for one in decided] == [(1, "continue"), (3, "continue")]
    miss(service, name)
    later = given(service, name)
    assert resumed_from(later) == "/c/2"
    assert later.report(epoch=3, accuracy=again)["decision"] == "continue"
    assert service.get(path)["items"] == decided
    later.finish()
    other = given(service, name)
    assert [other.report(epoch=step, accuracy=value)["decision"] for step, value in ((1, 0.1), (3, 0.2))] == [
        "continue",
        "stop",
    ]
    [stop] = [one for one in service.get(f"/v1/trials/{other.trial}/decisions")["items"] if one["decision"] == "stop"]
    assert (stop["milestone"], stop["cutoff"], stop["compared_with"]) == (3, 0.3, [0])


def test_losses_that_do_not_say_that_the_checkpoint_is_missing_change_nothing(service: Api) -> None:
    """Such as those that an agent of an earlier version reports, and of a storage that is away."""
    name, trial = saved(service)
    assert miss(service, name, is_told=False, times=MAX_LOSSES + 1) == ["/c/3"] * (MAX_LOSSES + 1)
    assert (trial.shown()["status"], trial.shown()["failure_kind"]) == ("failed", "lost")


def lose(service: Api, name: str, times: int) -> list[str]:
    """Attempts that are lost after they have resumed; returns what from."""
    tried = []
    for _ in range(times):
        held = given(service, name)
        tried.append(resumed_from(held))
        held.fail("lost", "the node is gone")
    return tried


def test_a_trial_without_any_checkpoint_on_the_storage_fails_with_the_reason(service: Api) -> None:
    """As where the nodes do not share the storage. It does not begin anew, which would hide that."""
    name, trial = saved(service, limits={"max_trials": 2})
    tried = miss(service, name, times=MAX_MISSES + 1)
    assert tried == ["/c/3", "/c/3", "/c/2", "/c/2", "/c/1", "/c/1"]
    shown = trial.shown()
    assert (shown["status"], shown["failure_kind"], shown["reason"]) == ("failed", "lost", SAID)
    service.post(f"/v1/trials/{trial.trial}/retry")
    assert miss(service, name, times=2) == ["/c/3"] * 2
    assert trial.shown()["reason"] == SAID, "the trial goes back to the newest one"


def test_an_emptied_storage_costs_no_two_attempts_for_each_of_many_checkpoints(service: Api) -> None:
    name, trial = saved(service, tuple(range(1, 21)), checkpoints={"keep": 20}, limits={"max_trials": 2})
    assert miss(service, name, times=MAX_MISSES + 1) == [f"/c/{step}" for step in (20, 20, 19, 19, 18, 18)]
    assert trial.shown()["status"] == "failed"
    service.post(f"/v1/trials/{trial.trial}/retry")
    assert miss(service, name, times=1) == ["/c/17"]


def test_other_losses_do_not_keep_a_trial_from_its_older_checkpoint(service: Api) -> None:
    name, trial = saved(service)
    assert lose(service, name, MAX_LOSSES - 1) == ["/c/3"] * (MAX_LOSSES - 1)
    assert miss(service, name) == ["/c/3"] * 2
    assert resumed_from(given(service, name)) == "/c/2"
    assert trial.shown()["status"] == "running"


def test_attempts_that_missed_a_checkpoint_do_not_count_as_losses_from_it(service: Api) -> None:
    name, trial = saved(service)
    assert miss(service, name, times=1) == ["/c/3"]
    assert lose(service, name, MAX_LOSSES) == ["/c/3"] * MAX_LOSSES
    assert trial.shown()["status"] == "queued"
    assert lose(service, name, 1) == ["/c/3"]
    assert trial.shown()["status"] == "failed"


def test_a_trial_that_is_lost_from_the_older_checkpoint_again_and_again_fails(service: Api) -> None:
    name, trial = saved(service)
    assert miss(service, name) == ["/c/3"] * 2
    assert lose(service, name, MAX_LOSSES + 1) == ["/c/2"] * (MAX_LOSSES + 1)
    assert trial.shown()["status"] == "failed"


def test_a_trial_whose_attempts_save_the_same_step_again_and_again_fails(service: Api) -> None:
    """Its function starts over in each attempt."""
    name, trial = saved(service)
    assert miss(service, name) == ["/c/3"] * 2
    tried = []
    for number in range(1 + MAX_LOSSES + 1):
        held = given(service, name)
        tried.append(resumed_from(held))
        held.report(epoch=3, accuracy=0.1, checkpoint=f"/again-{number}/3")
        held.fail("lost", "the node is gone")
    assert tried == ["/c/2", *(f"/again-{number}/3" for number in range(MAX_LOSSES + 1))]
    assert trial.shown()["status"] == "failed"


def test_an_attempt_that_reports_ends_a_row_of_misses_unless_it_is_one(service: Api) -> None:
    name, trial = saved(service, checkpoints={"keep": 1})
    assert miss(service, name, times=MAX_MISSES) == ["/c/3"] * MAX_MISSES
    found = given(service, name)
    found.report(epoch=3, accuracy=0.1)
    found.fail("lost", "the node is gone")
    for _ in range(MAX_MISSES + 1):
        assert trial.shown()["status"] == "queued"
        held = given(service, name)
        held.report(epoch=3, accuracy=0.1)
        held.finish("failed", error={"kind": "lost", "message": SAID, "is_checkpoint_missing": True})
    assert trial.shown()["status"] == "failed"


def test_the_reason_names_no_older_checkpoint_where_the_trial_continues_from_none(service: Api) -> None:
    name = service.create(**STORED)["name"]
    for _ in range(MISSES):
        first = given(service, name)
        assert resumed_from(first) is None
        first.finish("failed", error={"kind": "lost", "message": SAID, "is_checkpoint_missing": True})
        assert first.shown()["reason"] == SAID
    saving = given(service, name)
    for step in (1, 2):
        saving.report(epoch=step, accuracy=0.1, checkpoint=f"/c/{step}")
    saving.fail("lost", "the node is gone")
    miss(service, name, times=1)
    newer = given(service, name)
    newer.report(epoch=3, accuracy=0.1, checkpoint="/c/3")
    newer.finish("failed", error={"kind": "lost", "message": SAID, "is_checkpoint_missing": True})
    assert newer.shown()["reason"] == SAID
    assert resumed_from(given(service, name)) == "/c/3"


def test_the_only_checkpoint_is_tried_as_often_as_before(service: Api) -> None:
    name, trial = saved(service, checkpoints={"keep": 1})
    assert miss(service, name, times=MAX_MISSES + 1) == ["/c/3"] * (MAX_MISSES + 1)
    assert (trial.shown()["status"], trial.shown()["reason"]) == ("failed", SAID)


@pytest.mark.parametrize("kept", ["newest", "pinned", "best"])
def test_a_checkpoint_that_is_saved_anew_at_the_step_replaces_the_missing_one(service: Api, kept: str) -> None:
    objective = {"metric": "accuracy", "direction": "maximize", "report": "best" if kept == "best" else "newest"}
    name, trial = saved(service, objectives=[objective])
    pin = f"/v1/trials/{trial.trial}/checkpoints/3/pin"
    if kept == "pinned":
        service.call("PUT", pin, 200)
    miss(service, name)
    again = given(service, name)
    assert resumed_from(again) == "/c/2"
    again.report(epoch=3, accuracy=0.3, checkpoint="/c/3-again")
    again.fail("lost", "its node is gone, too")
    shown = trial.shown()["checkpoint"]
    assert (shown["uri"], shown["attempt"], shown["pinned"]) == ("/c/3-again", 4, kept == "pinned")
    last = given(service, name)
    assert last.assignment["resume"] == {"uri": "/c/3-again", "step": 3}


def test_an_older_checkpoint_stays_when_the_missing_one_is_saved_anew(service: Api) -> None:
    """It stays if the new one is no better, too. The slot counts the same ones: those that it got, and its own."""
    objective = {"metric": "accuracy", "direction": "maximize", "report": "best"}
    name, trial = saved(service, (8, 9, 10), objectives=[objective])
    miss(service, name)
    again = given(service, name)
    assert again.assignment["earlier_checkpoints"] == ["/c/8", "/c/9"]
    again.report(epoch=10, accuracy=0.1, checkpoint="/c/10-again")
    assert listed(service, trial.trial) == ["/c/10-again", "/c/8", "/c/9"]
    again.report(epoch=11, accuracy=0.1, checkpoint="/c/11")
    assert listed(service, trial.trial) == ["/c/10-again", "/c/11", "/c/9"]


def test_a_missing_checkpoint_takes_no_place_of_those_that_are_kept(service: Api) -> None:
    name, trial = saved(service, (10, 20, 30))
    miss(service, name)
    again = given(service, name)
    left = []
    for step in (21, 22, 23):
        again.report(epoch=step, accuracy=0.1, checkpoint=f"/c/{step}")
        left.append(listed(service, trial.trial))
    assert left == [
        ["/c/10", "/c/20", "/c/21", "/c/30"],
        ["/c/20", "/c/21", "/c/22", "/c/30"],
        ["/c/21", "/c/22", "/c/23"],
    ]


def test_the_newest_counts_for_the_slot_when_it_is_tried_although_all_are_missing(service: Api) -> None:
    name, trial = saved(service, checkpoints={"keep": 2}, limits={"max_trials": 2})
    miss(service, name, times=MAX_MISSES + 1)
    service.post(f"/v1/trials/{trial.trial}/retry")
    back = given(service, name)
    assert (resumed_from(back), back.assignment["earlier_checkpoints"]) == ("/c/3", ["/c/3"])
    left = []
    for step in (4, 5):
        back.report(epoch=step, accuracy=0.1, checkpoint=f"/c/{step}")
        left.append(listed(service, trial.trial))
    assert left == [["/c/3", "/c/4"], ["/c/4", "/c/5"]]


def test_a_checkpoint_that_is_saved_anew_under_the_same_uri_is_not_missing(service: Api) -> None:
    """As by an external program that names its files by the steps."""
    name, trial = saved(service)
    assert miss(service, name) == ["/c/3"] * 2
    again = given(service, name)
    again.report(epoch=3, accuracy=0.3, checkpoint="/c/3")
    assert listed(service, trial.trial) == ["/c/1", "/c/2", "/c/3"]
    again.report(epoch=4, accuracy=0.3, checkpoint="/c/4")
    assert listed(service, trial.trial) == ["/c/2", "/c/3", "/c/4"]
    again.fail("lost", "its node is gone")
    assert miss(service, name) == ["/c/4"] * 2
    assert resumed_from(given(service, name)) == "/c/3"


@pytest.mark.parametrize("kept", ["pinned", "best"])
def test_one_attempt_that_misses_a_kept_checkpoint_does_not_replace_it(service: Api, kept: str) -> None:
    objective = {"metric": "accuracy", "direction": "maximize", "report": "best" if kept == "best" else "newest"}
    name, trial = saved(service, objectives=[objective])
    if kept == "pinned":
        service.call("PUT", f"/v1/trials/{trial.trial}/checkpoints/3/pin", 200)
    miss(service, name, times=1)
    again = given(service, name)
    again.report(epoch=3, accuracy=0.3, checkpoint="/c/3-again")
    assert trial.shown()["checkpoint"]["uri"] == "/c/3"


def test_a_newer_checkpoint_counts_before_an_older_one_after_a_miss(service: Api) -> None:
    name, _ = saved(service, (1, 2, 9))
    assert miss(service, name) == ["/c/9", "/c/9"]
    again = given(service, name)
    again.report(epoch=4, accuracy=0.1, checkpoint="/c/4")
    again.fail("lost", "its node is gone")
    assert resumed_from(given(service, name)) == "/c/4"


def an_heir(service: Api, name: str, trainer: Trainer) -> tuple[Held, Held]:
    """The trial of a population that resumes from the donor's checkpoint, and another one that runs beside it."""
    trainer.train_all(service, name, most=2)
    while True:
        both = sorted([given(service, name), given(service, name)], key=lambda one: int(one.assignment["number"]))
        if both[1].assignment["number"] == 3:
            assert resumed_from(both[1]) == "/checkpoints/0-1-2"
            return both[1], both[0]
        for held in both:
            trainer.train(held)


def after_missing_its_own(service: Api, name: str, heir: Held) -> Held:
    """The heir's attempt after those that have missed its own checkpoint."""
    heir.report(loss=9, checkpoint="/checkpoints/own")
    heir.fail("lost", "its node is gone")
    assert miss(service, name) == ["/checkpoints/own"] * MISSES
    last = given(service, name)
    assert last.trial == heir.trial
    return last


def test_a_member_of_a_population_continues_from_its_donors_checkpoint_if_its_own_is_missing(service: Api) -> None:
    """What it has saved with its earlier params is not used."""
    name = service.create(**a_population(checkpoints={"keep": 3}))["name"]
    heir, _ = an_heir(service, name, Trainer())
    assert resumed_from(after_missing_its_own(service, name, heir)) == "/checkpoints/0-1-2"


def test_a_donors_checkpoint_that_is_no_longer_kept_is_not_offered_again(service: Api) -> None:
    """The donor has saved newer ones, and nothing keeps it for a trial that has saved its own."""
    name, trainer = service.create(**a_population())["name"], Trainer()
    heir, other = an_heir(service, name, trainer)
    trainer.train(other)
    assert not any("/checkpoints/0-1-2" in listed(service, trial["id"]) for trial in trials(service, name))
    assert resumed_from(after_missing_its_own(service, name, heir)) == "/checkpoints/own"
