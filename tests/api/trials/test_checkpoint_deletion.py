"""What becomes of checkpoints when their experiment is deleted: its agents delete them, and say so."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from service.settings import Settings
from service.store.checkpoints.checkpoint_deletions import LISTED, add_deletions
from service.store.sql.database import database_now
from service.store.tables import AgentRow, CheckpointRow
from tests.conftest import Api, Held, running

pytestmark = pytest.mark.slow

TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}


def saved(service: Api, agent: str = "here", uri: str | None = None, **changes: Any) -> str:
    """The name of an ended experiment whose only trial an agent has run, and that has saved a checkpoint."""
    created = service.create(trainer=TORCH, limits={"max_trials": 1}, **changes)
    held = service.claim(agent)
    assert held
    assignment = held.assignment
    folder = f"{assignment['storage_path']}/{assignment['run_name']}"
    held.report(accuracy=0.5, checkpoint=uri or f"{folder}/checkpoint_1")
    held.finish()
    return str(created["name"])


def folder_of(service: Api, settings: Settings, name: str) -> str:
    return f"{settings.storage}/{name}-{service.get(f'/v1/experiments/{name}')['id']}"


def deletions(service: Api, agent: str = "here") -> dict[str, int]:
    """The ids of what the agent is to delete, by directory."""
    held = service.get(f"/v1/agents/{agent}/attempts")
    return {one["directory"]: one["id"] for one in held["deletions"]}


def tell(service: Api, agent: str = "here", **results: Any) -> None:
    service.post(f"/v1/agents/{agent}/deletions", 204, json=results)


def fail_all(service: Api) -> set[str]:
    """The agent can delete none of the directories that it is given, which are returned."""
    listed = deletions(service)
    tell(service, failed=[{"id": id_, "error": "NoSuchBucket"} for id_ in listed.values()])
    return set(listed)


def delete(service: Api, name: str, **params: Any) -> None:
    assert service.http.delete(f"/v1/experiments/{name}", params=params).status_code == 204


def test_a_deleted_experiments_folder_is_named_to_its_agents_until_they_have_deleted_it(
    service: Api, settings: Settings
) -> None:
    name = saved(service)
    folder = folder_of(service, settings, name)
    service.claim("elsewhere", status=204)
    assert deletions(service) == {}
    delete(service, name)
    with running(settings) as after_a_restart:
        [(directory, id_)] = deletions(after_a_restart).items()
    assert directory == folder
    assert deletions(service, "elsewhere") == {}
    assert service.get("/readyz")["pending_deletions"] == 1
    tell(service, failed=[{"id": id_, "error": "OSError: the disk is away"}])
    assert deletions(service) == {folder: id_}
    for _ in range(2):
        tell(service, deleted=[id_])
        assert deletions(service) == {}
    assert service.get("/readyz")["pending_deletions"] == 0


def test_a_result_that_is_repeated_removes_no_later_deletion(service: Api) -> None:
    delete(service, saved(service))
    [done] = deletions(service).values()
    tell(service, deleted=[done])
    delete(service, saved(service))
    later = deletions(service)
    tell(service, deleted=[done])
    assert deletions(service) == later


def test_deletions_that_fail_are_tried_again_in_turn(service: Api, settings: Settings) -> None:
    database = service.app.state.context.database
    with database.write() as session:
        add_deletions(session, ["here"], [f"s3://gone/{number}" for number in range(LISTED)], database_now(session))
    fail_all(service)
    name = saved(service)
    folder = folder_of(service, settings, name)
    delete(service, name)
    assert folder in fail_all(service), "new ones come first"
    assert folder not in fail_all(service), "it was tried last"
    assert folder in fail_all(service)


def test_checkpoints_are_kept_on_request(service: Api) -> None:
    delete(service, saved(service), keep_checkpoints=True)
    assert deletions(service) == {}


def test_checkpoints_of_callers_that_ran_their_trials_themselves_are_theirs(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert isinstance(held, Held)
    held.report(accuracy=0.5, checkpoint="/home/someone/model")
    held.finish()
    delete(service, name)
    assert deletions(service) == {}
    assert service.get("/readyz")["pending_deletions"] == 0


def test_folders_in_an_earlier_storage_are_deleted_too_and_nothing_else(service: Api, settings: Settings) -> None:
    created = service.create(trainer=TORCH, limits={"max_trials": 1}, checkpoints={"keep": 10})
    held = service.claim()
    assert held
    folder = f"{created['name']}-{created['id']}"
    run = f"{folder}/trial-0-attempt-1"
    uris = [f"s3://old/{run}/c", "/etc", f"/data/../etc/{run}/c", f"/data/{folder}/other", f"/nas/{run}/a/b"]
    for uri in uris:
        held.report(accuracy=0.5, checkpoint=uri)
    held.finish()
    delete(service, created["name"])
    assert set(deletions(service)) == {f"{settings.storage}/{folder}", f"s3://old/{folder}"}


def test_no_agent_is_sent_to_a_server_that_a_report_names(service: Api, settings: Settings) -> None:
    """Reports of this version cannot; an earlier one has stored them."""
    name = saved(service)
    folder = folder_of(service, settings, name)
    run = f"{folder.rpartition('/')[2]}/trial-0-attempt-1"
    with service.app.state.context.database.write() as session:
        session.scalars(select(CheckpointRow)).one().uri = f"s3://bucket/{run}/c?endpoint_override=elsewhere"
    delete(service, name)
    assert set(deletions(service)) == {folder}


def test_the_deletions_of_an_agent_that_is_gone_are_passed_on(service: Api, settings: Settings) -> None:
    name = saved(service, "gone")
    folder = folder_of(service, settings, name)
    delete(service, name)
    service.claim("another", status=204)
    assert deletions(service, "another") == {}
    with service.app.state.context.database.write() as session:
        row = session.scalars(select(AgentRow).where(AgentRow.name == "gone")).one()
        row.last_seen_at -= timedelta(hours=1)
    assert set(deletions(service, "another")) == {folder}


def test_an_agent_without_its_storage_gets_no_trial_and_is_seen(service: Api) -> None:
    assert service.get("/readyz")["storage"] == "unknown: no agent is connected"
    service.create(trainer=TORCH, limits={"max_trials": 4, "parallelism": 4})
    service.claim("b")
    running = service.claim("a")
    assert running
    assert service.get("/readyz")["storage"] == "ok"
    error = "/mnt/nas cannot be written: OSError: Input/output error"
    service.claim("a", status=204, storage_error=error)
    assert {one["name"]: one["storage_error"] for one in service.get("/v1/agents")["items"]} == {"a": error, "b": None}
    ready = service.get("/readyz")
    assert "1 of 2 connected agents cannot write" in ready["storage"]
    assert "/mnt/nas" not in str(ready), "this call needs no token"
    assert running.finish(next=True)["next"] is None
    service.claim("b", status=204, storage_error=error)
    assert service.get("/readyz", 503)["ready"] is False
    assert "storage" in service.create(trainer=TORCH)["waiting_for"]
    assert service.claim("a")
    assert service.get("/readyz")["ready"] is True


def test_room_of_an_agent_without_its_storage_is_not_counted(service: Api) -> None:
    small = {"total": {"CPU": 1.0}, "free": {"CPU": 1.0}}
    service.claim("large", status=204, storage_error="/mnt/nas cannot be written")
    service.claim("small", status=204, nodes=[small])
    trainer = TORCH | {"scaling": {"num_workers": 4}}
    waiting = service.create(trainer=trainer)["waiting_for"]
    assert waiting == "the storage: no agent with room can write checkpoints to it; GET /v1/agents says why"
    assert service.create(trainer=trainer | {"scaling": {"num_workers": 40}})["waiting_for"].startswith("40 workers")
