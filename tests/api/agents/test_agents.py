"""Claims of agents, and what an experiment waits for."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from service.settings import Settings
from service.store.tables import AgentRow, AttemptRow
from tests.api.agents.agent_instances import TORCH, an_instance
from tests.concurrent_calls import during_insert
from tests.conftest import Api, changed, running
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow


def nodes(*sizes: dict[str, float]) -> list[dict[str, Any]]:
    return [{"total": size, "free": size} for size in sizes]


def test_a_claim_gives_a_trial_that_fits_and_a_repeated_request_the_same_one(service: Api) -> None:
    name = service.create(trainer=TORCH | {"scaling": {"num_workers": 2, "resources_per_worker": {"CPU": 2}}})["name"]
    assert service.claim(status=204, nodes=nodes({"CPU": 3})) is None
    first = service.claim(request_id="one", nodes=nodes({"CPU": 2}, {"CPU": 2}))
    again = service.claim(request_id="one", nodes=nodes({"CPU": 2}, {"CPU": 2}))
    assert first
    assert again
    assert first.assignment == again.assignment
    assert first.assignment["experiment"] == name
    assert first.assignment["trainer"]["scaling"]["num_workers"] == 2


def test_no_request_id_of_a_claim_gets_the_lease_of_a_slot(service: Api) -> None:
    """A slot asks for its next trial with an id of the service's own, of a form that is easy to guess."""
    service.create(trainer=TORCH)
    taken = [service.claim(request_id=f"after-x{number}") for number in range(3)]
    first = service.claim()
    assert first
    following = first.finish(next=True)["next"]
    with service.app.state.context.database.read() as session:
        attempts = session.scalars(select(AttemptRow.id)).all()
    tokens = {one.assignment["lease"]["token"] for one in taken if one}
    for number in attempts:
        claimed = service.http.post("/v1/agents/here/claim", json={"request_id": f"after-{number}", "nodes": []})
        assert claimed.status_code == 204
    assert len(tokens | {following["lease"]["token"]}) == 4
    again = service.claim(request_id="after-x0")
    assert again
    assert taken[0]
    lease = {"lease": {**taken[0].assignment["lease"], "expires_at": again.assignment["lease"]["expires_at"]}}
    assert again.assignment == taken[0].assignment | lease  # the service may have extended it meanwhile
    assert first.finish(next=True)["next"] == following


def test_no_agent_has_the_name_of_a_caller_that_runs_trials_itself(service: Api) -> None:
    held = service.ask(service.create()["name"], key="one")
    assert held
    holder = f"ask {held.assignment['experiment_id']}"
    claim = {"request_id": "one", "nodes": []}
    refused = service.post(f"/v1/agents/{holder}/claim", 422, json=claim)
    [mistake] = refused["errors"]
    assert mistake["path"] == "name"
    assert "must not begin with 'ask '" in mistake["message"]


def test_a_claim_waits_until_there_is_a_trial(service: Api) -> None:
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(service.claim(wait_seconds=60)))
    waiter.start()
    wait_until(lambda: service.get("/v1/agents")["items"])
    service.create(trainer=TORCH)
    waiter.join(PATIENCE_SECONDS)
    assert got[0] is not None


@pytest.mark.databases("postgresql")
def test_of_two_first_claims_of_an_agent_at_once_both_succeed(service: Api) -> None:
    """The second one begins when the first one has stored the agent and not committed."""
    service.create(trainer=TORCH)
    context = service.app.state.context
    first = AgentRow(name="here", nodes=[], first_seen_at=context.clock(), last_seen_at=context.clock())
    assert during_insert(context.database, first, service.claim)
    [agent] = service.get("/v1/agents")["items"]
    assert agent["nodes"][0]["total"] == {"CPU": 8.0}


def test_a_waiting_claim_is_answered_when_its_agent_leaves(service: Api) -> None:
    leaving, seconds = an_instance(1), 60

    def claim() -> float:
        began = time.monotonic()
        service.claim("here", 204, instance=leaving, wait_seconds=seconds)
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(claim)
        wait_until(lambda: service.get("/v1/agents")["items"])
        service.post("/v1/agents/here/leave", 204, json=leaving)
        assert waiting.result() < seconds


def test_agents_get_no_trials_of_external_experiments(service: Api) -> None:
    service.create()
    assert service.claim(status=204) is None


def test_experiments_are_served_by_priority_and_then_by_fewest_running_trials(service: Api) -> None:
    low = service.create(trainer=TORCH, priority=0)["name"]
    other = service.create(trainer=TORCH, priority=0)["name"]
    high = service.create(trainer=TORCH, priority=5, limits={"max_trials": 1})["name"]
    claims = [service.claim() for _ in range(4)]
    got = [held.assignment["experiment"] for held in claims if held]
    assert got == [high, low, other, low]


def test_an_experiment_is_found_behind_others_that_cannot_start_a_trial(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.operations.attempts.scheduling.experiment_line.PAGE", 2)
    limits = {"max_trials": 5, "parallelism": 1}
    for _ in range(4):
        service.create(trainer=TORCH, priority=1, limits=limits)
        assert service.claim()
    assert service.claim(status=204) is None
    last = service.create(trainer=TORCH, priority=0, limits=limits)["name"]
    held = service.claim()
    assert held
    assert held.assignment["experiment"] == last
    held.report(accuracy=1)
    assert held.finish(next=True)["next"]["experiment"] == last


def test_a_warm_slot_gets_the_next_trial_only_if_no_other_experiment_comes_first(service: Api) -> None:
    first = service.create(trainer=TORCH)["name"]
    held = service.claim()
    assert held
    held.report(accuracy=1)
    went_on = held.finish(next=True)["next"]
    assert went_on["experiment"] == first
    service.create(trainer=TORCH, priority=5)
    second = type(held)(service, went_on)
    second.report(accuracy=1)
    assert second.finish(next=True)["next"] is None


def test_an_experiment_says_what_it_waits_for(service: Api) -> None:
    scaling = {"num_workers": 2, "use_gpu": True}
    name = service.create(trainer=TORCH | {"scaling": scaling})["name"]

    def waiting() -> str | None:
        said: str | None = service.get(f"/v1/experiments/{name}")["waiting_for"]
        return said

    assert waiting() == "an agent: none is connected (needs 2 workers x 1 GPU)"
    service.claim(status=204, nodes=nodes({"CPU": 8}))
    assert waiting() == "2 workers x 1 GPU; the largest cluster has 0 GPU"
    service.claim(status=204, agent="gpus", nodes=[{"total": {"CPU": 8, "GPU": 2}, "free": {"CPU": 8, "GPU": 0}}])
    assert waiting() == "2 workers x 1 GPU; 0 GPU free now"
    service.claim(status=200, agent="gpus", nodes=nodes({"GPU": 2}))
    assert waiting() is None


def test_an_experiment_that_waits_for_a_withheld_node_says_why(service: Api) -> None:
    name = service.create(trainer=TORCH)["name"]
    full = "node 10.0.0.5: the package cannot be unpacked: [Errno 28] No space left on device"
    withheld = {"total": {"CPU": 8}, "free": {}, "withheld": full}
    assert service.claim("here", status=204, nodes=[withheld]) is None
    assert service.get(f"/v1/experiments/{name}")["waiting_for"] == (
        f"1 worker x 1 CPU; 0 CPU free now; a node gets no new trial for some minutes: {full}"
    )
    assert [one["withheld"] for one in service.get("/v1/agents")["items"][0]["nodes"]] == [full]
    assert service.claim("here", nodes=[withheld, {"total": {"CPU": 8}, "free": {"CPU": 8}}]), "another node takes it"


def test_a_trial_starts_only_where_its_validation_has_room_beside_it(service: Api) -> None:
    validation = {"entrypoint": "train:validate", "ray_remote_kwargs": {"num_gpus": 1}}
    name = service.create(trainer=TORCH | {"scaling": {"use_gpu": True}, "validation": validation})["name"]
    assert service.claim(status=204, nodes=nodes({"CPU": 8, "GPU": 1})) is None
    assert service.get(f"/v1/experiments/{name}")["waiting_for"] == (
        "1 worker x 1 GPU, and beside them 1 GPU for trainer.validation; "
        "there is room for the workers, but not for the validation"
    )
    assert service.claim(nodes=nodes({"CPU": 8, "GPU": 2}))


def test_a_trial_goes_to_nodes_with_its_labels_only(service: Api) -> None:
    scaling = {"label_selector": {"zone": "a"}}
    name = service.create(trainer=TORCH | {"scaling": scaling})["name"]
    room = {"total": {"CPU": 8}, "free": {"CPU": 8}}
    assert service.claim(status=204, nodes=[room]) is None
    assert service.claim(status=204, nodes=[room | {"labels": {"zone": "b"}}]) is None
    waiting = service.get(f"/v1/experiments/{name}")["waiting_for"]
    assert waiting == "1 worker x 1 CPU on nodes with zone=a; no node has zone=a"
    held = service.claim(nodes=[room, room | {"labels": {"zone": "a"}}])
    assert held
    assert held.assignment["trainer"]["scaling"]["label_selector"] == {"zone": "a"}


def test_agents_are_listed_with_their_nodes_and_running_trials(service: Api) -> None:
    service.create(trainer=TORCH)
    held = service.claim("here")
    assert held
    (agent,) = service.get("/v1/agents")["items"]
    assert (agent["name"], agent["connected"], agent["running"]) == ("here", True, [held.trial])
    assert agent["nodes"][0]["total"] == {"CPU": 8.0}


def test_a_waiting_claim_does_not_take_the_trial_that_a_warm_slot_is_about_to_get(service: Api) -> None:
    service.create(trainer=TORCH, limits={"max_trials": 30, "parallelism": 1})
    held = service.claim()
    stolen: list[Any] = []

    def wait_for_work() -> None:
        stolen.append(service.claim("another", status=204, wait_seconds=2))

    waiter = threading.Thread(target=wait_for_work)
    waiter.start()
    while waiter.is_alive():
        assert held
        held.report(accuracy=1)
        following = held.finish(next=True)["next"]
        if following is None:
            break
        held = type(held)(service, following)
    waiter.join()
    assert stolen == [None]


def test_experiments_that_no_agent_can_run_do_not_keep_slots_from_their_next_trial(service: Api) -> None:
    service.create(priority=9)
    service.create(priority=9, trainer=TORCH | {"scaling": {"num_workers": 1, "use_gpu": True}})
    service.create(trainer=TORCH)
    held = service.claim()
    assert held
    held.report(accuracy=1)
    assert held.finish(next=True)["next"]


def test_a_restarted_agent_reports_attempts_that_no_slot_runs_as_lost(service: Api) -> None:
    name = service.create(trainer=TORCH)["name"]
    lost, kept, others = service.claim("here"), service.claim("here"), service.claim("there")
    assert lost
    assert kept
    assert others
    held = service.get("/v1/agents/here/attempts")["attempts"]
    assert held == [{"trial": one.trial, "attempt": 1} for one in (lost, kept)]
    again = service.claim("here", lost=[held[0], {"trial": others.trial, "attempt": 1}])
    assert again
    assert again.trial == lost.trial
    assert again.assignment["attempt"] == 2
    lost.report(409, accuracy=1)
    kept.report(accuracy=1)
    others.report(accuracy=1)
    service.claim("here", lost=held[:1])
    again.report(accuracy=1)
    assert service.get(f"/v1/experiments/{name}")["counts"]["failed"] == 0


@pytest.mark.parametrize(("heard", "said", "began"), [(False, True, False), (True, True, True), (True, False, False)])
def test_a_lost_attempt_has_begun_if_a_slot_had_it_unless_the_agent_says_otherwise(
    service: Api, heard: bool, said: bool, began: bool
) -> None:
    service.create(trainer=TORCH)
    held = service.claim("here")
    assert held
    if heard:
        held.heartbeat()
    service.claim("here", nodes=[], status=204, lost=[{"trial": held.trial, "attempt": 1, "began": said}])
    [attempt] = service.get(f"/v1/trials/{held.trial}")["attempts"]
    assert attempt["error"]["kind"] == "lost"
    assert attempt["error"]["began"] is began


def test_a_second_process_under_an_agents_name_is_refused_unless_it_knows_that_the_first_is_dead(service: Api) -> None:
    first, second = an_instance(1), an_instance(2)
    service.create(trainer=TORCH)
    held = service.claim("here", instance=first)
    assert held
    body = {"request_id": "one", "nodes": nodes({"CPU": 8}), "instance": second}
    lost = [{"trial": held.trial, "attempt": 1}]
    refused = service.post("/v1/agents/here/claim", 409, json={**body, "lost": lost})
    assert (refused["type"], refused["holder"]) == ("urn:paceline:error:agent-name-taken", first)
    assert "process 1 at a-host" in refused["detail"]
    held.report(accuracy=0.5)
    service.post("/v1/agents/here/claim", 409, json={**body, "replaces": an_instance(3)})
    service.post("/v1/agents/here/claim", 200, json={**body, "replaces": first})
    service.post("/v1/agents/here/claim", 409, json={**body, "instance": first})
    assert service.claim("there", instance=first)


def test_only_the_holder_of_a_name_can_release_it(service: Api) -> None:
    first, second = an_instance(1), an_instance(2)
    service.post("/v1/agents/here/leave", 204, json=first)
    service.claim("here", 204, instance=first)
    service.post("/v1/agents/here/leave", 204, json=second)
    service.claim("here", 409, instance=second)
    for _ in range(2):
        service.post("/v1/agents/here/leave", 204, json=first)
    service.claim("here", 204, instance=second)
    service.post("/v1/agents/here/leave", 204, json=first)
    service.claim("here", 409, instance=first)


def test_an_agents_name_is_free_after_a_lease_without_a_claim(settings: Settings) -> None:
    lease_seconds = 0.2
    with running(changed(settings, lease_seconds=lease_seconds)) as service:

        def can_claim(pid: int) -> bool:
            body = {"request_id": "one", "nodes": [], "instance": an_instance(pid)}
            status = service.http.post("/v1/agents/here/claim", json=body).status_code
            assert status in {204, 409}
            return status == 204

        def second_one_takes_the_name() -> bool:
            """Asked again if the first one claims so late that the name is free once more."""
            asked_at = time.monotonic()
            if not can_claim(2):
                return False
            first_one_can = can_claim(1)
            in_time = time.monotonic() - asked_at < lease_seconds
            assert not (first_one_can and in_time)
            return in_time

        service.claim("here", 204, instance=an_instance(1))
        wait_until(second_one_takes_the_name)
