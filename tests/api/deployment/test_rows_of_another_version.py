"""Two versions of the service work on one database during an upgrade, and an earlier one after the way back."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import JSON, select, type_coerce
from sqlalchemy.orm.attributes import flag_modified

from service.errors import Unavailable
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.specification.stored_spec import parse_stored_spec
from service.store.tables import AgentRow, AttemptRow, ExperimentRow, TrialRow
from tests.api.agents.agent_instances import TORCH, an_instance
from tests.conftest import Api, a_spec
from tests.store.lease_loops import LeaseLoops

pytestmark = pytest.mark.slow

LATER: dict[str, Any] = {"later_flag": False, "later_choice": None, "later_options": {}, "later_list": []}
"""Fields that only a later version knows, with the empty values that it stores by default."""

NODE = {"total": {"CPU": 8.0}, "free": {"CPU": 8.0}}


def context_of(service: Api) -> Context:
    context: Context = service.app.state.context
    return context


def test_rows_with_fields_of_a_later_version_are_read(service: Api) -> None:
    name = service.create(
        trainer=TORCH,
        space={"x": {"type": "float", "low": 0, "high": 1}},
        early_stopping={"rule": "asha"},
        failures={"max_retries": 3},
    )["name"]
    first = service.claim(instance=an_instance(1))
    assert first
    first.call("heartbeat", body={"running_seconds": 1.0, "phases": {"data": 0.5}})
    first.fail()
    add_fields_of_a_later_version(context_of(service), name)

    second = service.claim(instance=an_instance(1))
    assert second
    add_fields_of_a_later_version(context_of(service), name)
    second.report(loss=1.0)
    second.fail()
    assert service.get("/v1/experiments")["items"][0]["name"] == name
    assert service.get("/v1/agents")["items"][0]["nodes"] == [NODE | {"labels": {}, "withheld": None}]
    assert [one["outcome"] for one in second.shown()["attempts"]] == ["failed", "failed"]
    answers = {"": 200, "/best": 404, "/trials": 200, "/events?follow=false": 200, "/importance": 200}
    for what, status in answers.items():
        assert service.http.get(f"/v1/experiments/{name}{what}").status_code == status, what
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trials": 3}}).raise_for_status()


def add_fields_of_a_later_version(context: Context, name: str) -> None:
    with context.database.write() as session:
        experiment = session.scalars(select(ExperimentRow).where(ExperimentRow.name == name)).one()
        spec = experiment.spec
        parts: list[dict[str, Any]] = [spec, spec["trainer"], spec["trainer"]["scaling"], spec["early_stopping"]]
        for part in [*parts, spec["search"], spec["space"]["x"], spec["objectives"][0], spec["limits"]]:
            part.update(LATER)
        flag_modified(experiment, "spec")
        for agent in session.scalars(select(AgentRow)):
            agent.nodes = [node | LATER for node in agent.nodes]
        for attempt in session.scalars(select(AttemptRow)):
            if attempt.failure:
                attempt.failure = attempt.failure | LATER
            if attempt.phases:
                attempt.phases = attempt.phases | LATER


def test_an_experiment_that_uses_what_only_a_later_version_knows_waits_for_that_one(service: Api) -> None:
    name = service.create(trainer=TORCH)["name"]
    use_what_only_a_later_version_knows(context_of(service), name)
    answer = service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trials": 3}})
    assert answer.status_code == 503
    assert "uses what only a later version of the service knows: search.later; a service of" in answer.json()["detail"]


def test_an_earlier_version_leaves_an_experiment_without_a_number_of_trials_alone(service: Api) -> None:
    """It reads a number beside a field that it does not know; a null would be an error that it does not expect."""
    name = service.create(limits={"max_trials": None, "max_seconds": 60})["name"]
    stored = select(type_coerce(ExperimentRow.spec, JSON)).where(ExperimentRow.name == name)
    context = context_of(service)
    with context.database.read() as session:
        document = session.scalars(stored).one()
        assert session.scalars(select(ExperimentRow)).one().spec["limits"]["max_trials"] is None
    assert document["limits"]["max_trials"] == 100
    with pytest.raises(Unavailable, match=r"a later version of the service knows: limits\.no_max_trials; "):
        parse_stored_spec(document)
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_trials": 7}}).raise_for_status()
    with context.database.read() as session:
        document = session.scalars(stored).one()
    assert "no_max_trials" not in document["limits"]
    assert parse_stored_spec(document).limits.max_trials == 7


@pytest.fixture
def unreadable(service: Api) -> str:
    """The name of an experiment, the next in line, that uses what only a later version knows, and has a time limit."""
    limits = {"max_trials": 10, "max_seconds": 3600}
    name = str(service.create(trainer=TORCH, priority=9, limits=limits)["name"])
    use_what_only_a_later_version_knows(context_of(service), name)
    return name


def use_what_only_a_later_version_knows(context: Context, name: str) -> None:
    with context.database.write() as session:
        experiment = session.scalars(select(ExperimentRow).where(ExperimentRow.name == name)).one()
        experiment.spec = experiment.spec | {"search": experiment.spec["search"] | {"later": {"seeds": 3}}}


def test_the_others_go_on_beside_an_experiment_of_a_later_version(service: Api, unreadable: str) -> None:
    name = service.create(trainer=TORCH)["name"]
    held = service.claim()
    assert held
    assert held.assignment["experiment_id"] == service.get(f"/v1/experiments/{name}")["id"]
    held.report(accuracy=1.0)
    assert held.finish(next=True)["next"]
    assert service.get("/v1/agents/here/attempts")["attempts"]
    shown = {one["name"]: one for one in service.get("/v1/experiments")["items"]}
    assert shown.keys() == {name, unreadable}
    [warning] = shown[unreadable]["warnings"]
    assert "uses what only a later version of the service knows: search.later" in warning["message"]
    assert (shown[unreadable]["sampler"]["name"], shown[unreadable]["early_stopping"]["name"]) == ("random", "none")


def test_leases_run_out_beside_an_experiment_of_a_later_version(service: Api, unreadable: str) -> None:
    service.create(trainer=TORCH)
    held = service.claim()
    assert held
    context = context_of(service)
    loop = LeaseLoops(context)
    loop.run_once()
    with context.database.write() as session:
        attempt = session.scalars(select(AttemptRow).where(AttemptRow.ended_at.is_(None))).one()
        attempt.lease_expires_at = attempt.started_at - timedelta(days=1)
    assert loop.run_once() == 1
    assert held.shown()["status"] == "queued"


def test_an_expired_lease_of_an_experiment_of_a_later_version_waits_for_that_one(service: Api) -> None:
    """As after the way back to an earlier version: it neither fails the loop nor hides other leases."""
    names = [service.create()["name"] for _ in range(2)]
    held = [one for name in names if (one := service.ask(name))]
    context = context_of(service)
    use_what_only_a_later_version_knows(context, names[0])
    loop = LeaseLoops(context)
    loop.run_once()
    with context.database.write() as session:
        for attempt in session.scalars(select(AttemptRow)):
            attempt.lease_expires_at = attempt.started_at - timedelta(days=1)
    assert [loop.run_once() for _ in range(2)] == [1, 0]
    with context.database.read() as session:
        assert [session.get_one(TrialRow, one.trial).status for one in held] == ["running", "queued"]


def test_an_agent_that_lost_attempts_of_an_experiment_of_a_later_version_gets_other_trials(service: Api) -> None:
    limits = {"max_trials": 10, "parallelism": 1}
    names = [service.create(trainer=TORCH, priority=priority, limits=limits)["name"] for priority in (9, 0)]
    of_both = [one for _ in names if (one := service.claim(nodes=[NODE]))]
    lost = [{"trial": one.trial, "attempt": 1} for one in of_both]
    use_what_only_a_later_version_knows(context_of(service), names[0])
    again = service.claim(nodes=[NODE], lost=lost)
    assert again
    assert again.trial == of_both[1].trial


def test_a_submission_to_an_earlier_version_is_recognized_when_it_is_repeated(service: Api) -> None:
    spec, headers = a_spec(), {"Idempotency-Key": "once"}
    first = service.post("/v1/experiments", 201, json=spec, headers=headers)
    with context_of(service).database.write() as session:
        everything = json.dumps(ExperimentSpec.model_validate(spec).model_dump(mode="json"), sort_keys=True)
        experiment = session.scalars(select(ExperimentRow)).one()
        experiment.request_digest = hashlib.sha256(everything.encode()).hexdigest()
    again = service.post("/v1/experiments", 201, json=spec, headers=headers)
    assert again["id"] == first["id"]


def test_nodes_are_stored_without_empty_fields(service: Api) -> None:
    """An earlier version reads them, which refuses each field that it does not know."""
    assert service.claim(status=204, nodes=[NODE]) is None
    with context_of(service).database.read() as session:
        assert session.scalars(select(AgentRow)).one().nodes == [NODE]
