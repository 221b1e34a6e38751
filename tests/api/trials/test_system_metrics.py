"""The load of nodes and GPUs, as holders of attempts tell it: the attempt's summary, and the events."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from service.settings import Settings
from service.store.tables import TrialRow
from tests.conftest import Api, Held, changed, running

pytestmark = pytest.mark.slow


def a_sample(sequence: int, age: float = 0.0, **more: Any) -> dict[str, Any]:
    metrics = {
        "cpu_utilization_percentage": 30.0,
        "gpu_0_utilization_percentage": 90.0,
        "gpu_1_utilization_percentage": 50.0,
        "gpu_0_memory_usage_percentage": 75.0,
    }
    return {"sequence": sequence, "age_seconds": age, "metrics": metrics} | more


def a_trial(service: Api) -> Held:
    held = service.ask(service.create()["name"])
    assert held
    return held


def tell(held: Held, *samples: dict[str, Any], status: int = 200) -> None:
    held.call("heartbeat", status, {"system_metrics": samples})


def told(service: Api, held: Held) -> list[dict[str, Any]]:
    events = service.events(held.assignment["experiment"])
    return [event for event in events if event["kind"] == "attempt.system_metrics"]


def test_an_attempt_shows_how_busy_its_nodes_and_gpus_were(service: Api) -> None:
    held = a_trial(service)
    assert held.shown()["attempts"][0]["utilization"] is None
    tell(held, a_sample(0))
    tell(held, a_sample(1, metrics={"cpu_utilization_percentage": 50.0, "gpu_0_utilization_percentage": 100.0}))
    assert held.shown()["attempts"][0]["utilization"] == {
        "sample_count": 2,
        "mean_cpu_percentage": 40.0,
        "mean_gpu_percentage": 80.0,
        "peak_gpu_percentage": 100.0,
        "mean_gpu_memory_percentage": 75.0,
        "peak_gpu_memory_percentage": 75.0,
    }


def test_without_gpus_theirs_is_unknown(service: Api) -> None:
    held = a_trial(service)
    tell(held, a_sample(0, metrics={"cpu_utilization_percentage": 50.0}))
    shown = held.shown()["attempts"][0]["utilization"]
    assert (shown["mean_cpu_percentage"], shown["mean_gpu_percentage"], shown["peak_gpu_memory_percentage"]) == (
        50.0,
        None,
        None,
    )


def test_one_event_has_the_samples_of_a_call_with_their_times(service: Api) -> None:
    held = a_trial(service)
    with service.app.state.context.database.write() as session:
        session.get_one(TrialRow, held.trial).started_at -= timedelta(seconds=100)
    tell(held, a_sample(0, 60), a_sample(1, 50, node=1))
    [event] = told(service, held)
    first, second = event["data"]["samples"]
    assert event["data"]["attempt"] == 1
    assert first["metrics"] == a_sample(0)["metrics"]
    assert [sample.get("node") for sample in (first, second)] == [None, 1]
    at = [datetime.fromisoformat(sample["at"]) for sample in (first, second)]
    assert at[1] - at[0] == timedelta(seconds=10)
    assert datetime.fromisoformat(event["at"]) - at[0] == timedelta(seconds=60)
    assert second["step"] - first["step"] == 10
    assert first["step"] >= 40


def test_a_sample_that_is_sent_again_counts_once(service: Api) -> None:
    held = a_trial(service)
    tell(held, a_sample(0))
    tell(held, a_sample(0, 20), a_sample(1, 10), a_sample(2))
    tell(held, a_sample(0, 30), a_sample(2, 10))
    held.report(accuracy=0.5)
    held.finish(system_metrics=[a_sample(2, 20), a_sample(3)])
    held.finish(system_metrics=[a_sample(2, 20), a_sample(3)])
    assert [len(event["data"]["samples"]) for event in told(service, held)] == [1, 2, 1]
    assert held.shown()["attempts"][0]["utilization"]["sample_count"] == 4


def test_the_end_of_a_trial_comes_after_its_last_samples(service: Api) -> None:
    held = a_trial(service)
    held.report(accuracy=0.5)
    held.finish(system_metrics=[a_sample(0)])
    kinds = [event["kind"] for event in service.events(held.assignment["experiment"])]
    assert kinds.index("attempt.system_metrics") < kinds.index("attempt.ended")


def test_each_attempt_has_samples_of_its_own(service: Api) -> None:
    first = a_trial(service)
    first.fail("lost", "the node is gone", system_metrics=[a_sample(0)])
    second = service.ask(first.assignment["experiment"])
    assert second
    tell(second, a_sample(0))
    assert [attempt["utilization"]["sample_count"] for attempt in second.shown()["attempts"]] == [1, 1]


def test_a_holder_that_has_lost_its_lease_tells_nothing(service: Api) -> None:
    held = a_trial(service)
    held.fail("lost", "the node is gone")
    tell(held, a_sample(0), status=409)
    assert told(service, held) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": {"cpu_utilization_percentage": -1}},
        {"metrics": {"cpu_utilization_percentage": "50"}},
        {"metrics": {"cpu_utilization_percentage": None}},
        {"metrics": {"../cpu": 1}},
        {"metrics": {"": 1}},
        {"age_seconds": -1},
        {"node": -1},
        {"later": 1},
    ],
)
def test_wrong_samples_are_refused_and_change_nothing(service: Api, wrong: dict[str, Any]) -> None:
    held = a_trial(service)
    tell(held, a_sample(0) | wrong, status=422)
    held.finish(status=422, system_metrics=[a_sample(0) | wrong])
    assert told(service, held) == []


@pytest.mark.parametrize(("seconds", "expected"), [(10, 10), (0, None)])
def test_an_assignment_says_how_often_to_sample(settings: Settings, seconds: float, expected: float | None) -> None:
    with running(changed(settings, system_metrics_seconds=seconds)) as service:
        assert a_trial(service).assignment["system_metrics_seconds"] == expected
