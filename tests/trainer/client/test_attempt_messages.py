"""The bodies that a slot makes agree with the wire's, which it cannot import on the cluster."""

from dataclasses import fields

from trainer.client.attempt_messages import FinishBody, Progress
from trainer.wire import Finish, Heartbeat

PHASES = {"data": 1.0, "training": 2.0, "checkpointing": 3.0, "reporting": 4.0, "idle": 5.0}
SAMPLE = {"sequence": 0, "age_seconds": 0.5, "node": 1, "metrics": {"cpu_utilization_percentage": 50.0}}
ERROR = {"kind": "lost", "message": "away", "began": True, "traceback": None, "ranks": []}


def test_what_a_heartbeat_tells_is_all_of_the_wires_heartbeat_that_is_about_the_attempt() -> None:
    about_the_call = {"wait_seconds", "has_alternatives"}
    assert {one.name for one in fields(Progress)} == set(Heartbeat.model_fields) - about_the_call
    body = Progress(PHASES, 15.0, 2, [SAMPLE], is_ending=True).to_json()
    assert Heartbeat.model_validate(body).model_dump(mode="json", exclude=about_the_call) == body


def test_an_end_has_all_fields_of_the_wires() -> None:
    assert {one.name for one in fields(FinishBody)} == set(Finish.model_fields)
    body = FinishBody("failed", ERROR, PHASES, [SAMPLE], next=True).to_json()
    assert body == {"outcome": "failed", "error": ERROR, "phases": PHASES, "system_metrics": [SAMPLE], "next": True}
    told = Finish.model_validate(body).model_dump(mode="json", exclude_unset=True)
    assert {**told, "error": ERROR} == body


def test_what_says_nothing_is_left_out_because_earlier_services_refuse_it() -> None:
    assert Progress().to_json() == {}
    assert Progress(phases={}).to_json() == {"phases": {}}
    assert FinishBody("completed", None, {}, [], next=False).to_json() == {
        "outcome": "completed",
        "phases": {},
        "next": False,
    }
