"""Elastic worker groups over HTTP: what they need of an agent, and how many workers each attempt had."""

from typing import Any

import pytest

from tests.conftest import Api, Held

pytestmark = pytest.mark.slow

SCALING = {"num_workers": [2, 4], "elastic_resize_monitor_interval_s": 5}
PREEMPTED = {
    "kind": "preempted",
    "message": "the elastic group is resized from 2 to 4 workers; the trial continues from its checkpoint",
}


def an_experiment(service: Api, scaling: dict[str, Any] = SCALING, **changes: Any) -> str:
    trainer = {"entrypoint": "train:train_fn", "scaling": scaling}
    return str(service.create(trainer=trainer, **changes)["name"])


def claimed(service: Api, cpus: float = 8, **more: Any) -> Held | None:
    room = {"CPU": cpus}
    return service.claim(nodes=[{"total": room, "free": room}], **more)


def report(held: Held, step: int, world_size: int | None, checkpoint: str | None = None) -> Any:
    body: dict[str, Any] = {
        "reports": [{"sequence": held.sequence, "step": step, "metrics": {"accuracy": step}, "checkpoint": checkpoint}]
    }
    held.sequence += 1
    return held.call("reports", body=body | ({} if world_size is None else {"world_size": world_size}))


def test_a_pair_is_a_range_and_a_trial_starts_where_its_minimum_fits(service: Api) -> None:
    name = an_experiment(service)
    asked = service.get(f"/v1/experiments/{name}")["spec"]["trainer"]["scaling"]
    assert (asked["num_workers"], asked["max_workers"]) == (2, 4)
    assert claimed(service, cpus=1, status=204) is None
    assert service.get(f"/v1/experiments/{name}")["waiting_for"].startswith("2 to 4 workers x 1 CPU; ")
    held = claimed(service, cpus=2)
    assert held
    given = held.assignment["trainer"]["scaling"]
    assert (given["num_workers"], given["max_workers"]) == (2, 4)
    again = an_experiment(service, asked, name="again")
    assert service.get(f"/v1/experiments/{again}")["spec"]["trainer"]["scaling"] == asked, "what is shown can be sent"


def test_each_attempt_says_how_many_workers_it_had_and_a_resize_costs_no_budget(service: Api) -> None:
    name = an_experiment(service, failures={"max_retries": 0})
    held: Held | None = None
    for size, step in (
        (2, 1),
        (4, 3),
        (3, 5),
        (2, 7),
        (4, 9),
        (3, 11),
        (2, 13),
    ):  # more than the losses that end a trial
        held = claimed(service)
        assert held
        assert held.shown()["attempts"][-1]["world_size"] is None
        report(held, step, size)
        report(held, step + 1, size, f"/c/{step + 1}")
        if step < 13:
            held.finish("failed", error=PREEMPTED)
    assert held
    held.finish()
    shown = held.shown()
    assert shown["status"] == "completed"
    assert [one["world_size"] for one in shown["attempts"]] == [2, 4, 3, 2, 4, 3, 2]
    assert [one["resumed_step"] for one in shown["attempts"]] == [None, 2, 4, 6, 8, 10, 12]
    told = [one["data"] for one in service.events(name) if one["kind"] == "attempt.world_size"]
    assert told[:2] == [{"attempt": 1, "world_size": 2, "step": 0}, {"attempt": 2, "world_size": 4, "step": 2}]
    assert len(told) == 7
    cost = shown["attempts"][1]["cost"]
    held_seconds = sum(cost[f"{phase}_seconds"] or 0 for phase in ("starting", "data", "training", "unknown"))
    assert cost["worker_seconds"] == pytest.approx(4 * held_seconds, abs=0.01)


def test_what_a_former_group_trained_again_counts_once(service: Api) -> None:
    """The steps after the newest checkpoint are trained twice; the first value of each stands."""
    an_experiment(service)
    held = claimed(service)
    assert held
    report(held, 1, 2, "/c/1")
    report(held, 2, 2)
    held.finish("failed", error=PREEMPTED)
    again = claimed(service)
    assert again
    assert again.assignment["resume"] == {"uri": "/c/1", "step": 1}
    report(again, 2, 4)
    report(again, 3, 4)
    curve = service.get(f"/v1/trials/{again.trial}/reports")["items"]
    assert [(one["step"], one["attempt"]) for one in curve] == [(1, 1), (2, 1), (3, 2)]


def test_a_heartbeat_tells_the_size_before_the_first_report_and_it_does_not_change(service: Api) -> None:
    an_experiment(service)
    held = claimed(service)
    assert held
    held.call("heartbeat", body={"world_size": 3})
    assert held.shown()["attempts"][0]["world_size"] == 3
    held.call("heartbeat", body={"world_size": 4})
    report(held, 1, 4)
    assert held.shown()["attempts"][0]["world_size"] == 3


def test_a_fixed_group_has_the_number_of_its_specification(service: Api) -> None:
    an_experiment(service, {"num_workers": 2})
    held = claimed(service)
    assert held
    assert held.shown()["attempts"][0]["world_size"] == 2


def test_every_rank_that_an_elastic_group_may_have_can_send_its_log(service: Api) -> None:
    an_experiment(service)
    held = claimed(service)
    assert held
    held.call("logs", 204, {"rank": 3, "offset": 0, "text": "x"})
    held.call("logs", 422, {"rank": 4, "offset": 0, "text": "x"})
