"""The size of checkpoints, and the pins that keep them."""

from typing import Any

import pytest

from service.settings import Settings
from tests.conftest import Api, Held, changed, running

pytestmark = pytest.mark.slow


def an_attempt(service: Api, **changes: Any) -> tuple[str, Held]:
    """The experiment's name, and its first trial's attempt."""
    name = str(service.create(**changes)["name"])
    held = service.ask(name)
    assert held
    return name, held


def listed(held: Held) -> dict[str, dict[str, Any]]:
    """The checkpoints by URI."""
    return {one["uri"]: one for one in held.api.get(f"/v1/trials/{held.trial}/checkpoints")["items"]}


def pin(held: Held, step: int, status: int = 200) -> Any:
    return held.api.call("PUT", f"/v1/trials/{held.trial}/checkpoints/{step}/pin", status)


def unpin(held: Held, step: int, status: int = 200) -> Any:
    return held.api.call("DELETE", f"/v1/trials/{held.trial}/checkpoints/{step}/pin", status)


def stored_bytes(service: Api) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("paceline_checkpoint_bytes "))


def test_bytes_are_counted_by_checkpoint_trial_and_experiment_and_in_all(service: Api) -> None:
    name, held = an_attempt(service, checkpoints={"keep": 2})
    assert held.shown()["checkpoint_bytes"] == 0
    for number, size in enumerate((10_000_000_000, 20, 300)):
        held.report(accuracy=0.5, checkpoint=f"/{number}", checkpoint_bytes=size)
    other = service.ask(name)
    assert other
    other.report(accuracy=0.5, checkpoint="/other", checkpoint_bytes=4_000)
    assert [one["bytes"] for one in listed(held).values()] == [300, 20]
    assert held.shown()["checkpoint_bytes"] == 320
    assert held.shown()["checkpoint"]["bytes"] == 300
    assert service.get(f"/v1/experiments/{name}")["checkpoint_bytes"] == 4_320
    assert stored_bytes(service) == 4_320
    held.finish()
    other.finish()
    service.post(f"/v1/experiments/{name}/stop")
    service.http.delete(f"/v1/experiments/{name}").raise_for_status()
    assert stored_bytes(service) == 0


def test_a_size_that_a_holder_does_not_tell_is_unknown(service: Api) -> None:
    name, held = an_attempt(service, checkpoints={"keep": 2})
    held.report(accuracy=0.5, checkpoint="/1")
    assert [one["bytes"] for one in listed(held).values()] == [None]
    assert held.shown()["checkpoint_bytes"] is None
    assert service.get(f"/v1/experiments/{name}")["checkpoint_bytes"] == 0
    held.report(accuracy=0.5, checkpoint="/2", checkpoint_bytes=7)
    assert held.shown()["checkpoint_bytes"] == 7
    report = {"sequence": 2, "metrics": {}, "checkpoint": "/3", "checkpoint_bytes": -1}
    held.call("reports", 422, {"reports": [report]})


def test_a_pinned_checkpoint_stays_until_it_is_unpinned_and_the_slot_gets_to_know(service: Api) -> None:
    name, held = an_attempt(service)
    assert held.report(accuracy=0.5, checkpoint="/1")["kept"] == ["/1"]
    for _ in range(2):
        assert pin(held, 1)["pinned"] is True
    assert held.report(accuracy=0.5, checkpoint="/2")["kept"] == ["/1", "/2"]
    assert held.report(accuracy=0.5, checkpoint="/3")["kept"] == ["/1", "/3"]
    assert {uri: one["pinned"] for uri, one in listed(held).items()} == {"/3": False, "/1": True}
    for _ in range(2):
        assert unpin(held, 1)["pinned"] is False
    assert held.report(accuracy=0.5, checkpoint="/4")["kept"] == ["/4"]
    assert list(listed(held)) == ["/4"]
    kinds = [event["kind"] for event in service.events(name)]
    assert [kinds.count(kind) for kind in ("checkpoint.pinned", "checkpoint.unpinned")] == [1, 1]


def test_a_pinned_checkpoint_stays_when_a_later_attempt_saves(service: Api) -> None:
    name, first = an_attempt(service, step_metric="epoch")
    first.report(epoch=4, accuracy=0.5, checkpoint="/1/4")
    first.report(epoch=5, accuracy=0.5, checkpoint="/1/5")
    pin(first, 5)
    first.fail("lost")
    second = service.ask(name)
    assert second
    assert second.assignment["earlier_checkpoints"] == ["/1/5"]
    second.report(epoch=4, accuracy=0.5, checkpoint="/2/4")
    answer = second.report(epoch=5, accuracy=0.5, checkpoint="/2/5")
    assert answer["kept"] == ["/1/5", "/2/4"], "the step of a pinned one is not replaced, and the slot keeps both"
    assert second.report(epoch=6, accuracy=0.5, checkpoint="/2/6")["kept"] == ["/1/5", "/2/6"]
    assert list(listed(second)) == ["/2/6", "/1/5"]


def test_only_a_checkpoint_that_exists_can_be_pinned(service: Api) -> None:
    _, held = an_attempt(service)
    held.report(accuracy=0.5, checkpoint="/1")
    held.report(accuracy=0.5, checkpoint="/2")
    for change in (pin, unpin):
        problem = change(held, 1, 404)
        assert "no checkpoint at step 1" in problem["detail"]
        assert f"/v1/trials/{held.trial}/checkpoints" in problem["detail"]
        change(held, -1, 422)
    assert service.call("PUT", "/v1/trials/t-0/checkpoints/1/pin", 404)["detail"]


BUCKET = "s3://bucket/checkpoints?region=eu&endpoint_override=storage.example"
ELSEWHERE = "?region=eu&endpoint_override=elsewhere.example"


@pytest.mark.parametrize("storage", [BUCKET, "/data/checkpoints", "abfs://container@ours.example/checkpoints"])
def test_a_report_of_a_training_function_cannot_name_another_server(settings: Settings, storage: str) -> None:
    """In these schemes the authority names the server, which an agent would ask to delete the checkpoint."""
    with running(changed(settings, storage=storage)) as service:
        _, held = an_attempt(service, trainer={"kind": "torch", "entrypoint": "train:train_fn"})
        for uri in ("abfs://container@evil.example/x/trial-0-attempt-1/ck", "hdfs://evil.example:8020/x"):
            report = {"sequence": 0, "metrics": {}, "checkpoint": uri}
            answer = held.call("reports", 422, {"reports": [report]})
            assert "PACELINE_STORAGE" in answer["errors"][0]["message"]
        held.report(accuracy=0.5, checkpoint=storage.replace("/checkpoints", "/checkpoints/x"))


@pytest.mark.parametrize("kind", ["external", "torch"])
def test_a_report_cannot_choose_the_server_of_the_storage(settings: Settings, kind: str) -> None:
    trainer = {"kind": kind} | ({} if kind == "external" else {"entrypoint": "train:train_fn"})
    with running(changed(settings, storage=BUCKET)) as service:
        _, held = an_attempt(service, trainer=trainer, checkpoints={"keep": 3})
        report = {"sequence": 0, "metrics": {}, "checkpoint": f"s3://bucket/checkpoints/x{ELSEWHERE}"}
        answer = held.call("reports", 422, {"reports": [report]})
        assert "PACELINE_STORAGE" in answer["errors"][0]["message"]
        assert listed(held) == {}
        same, none = BUCKET.replace("?", "/x?"), "s3://bucket/checkpoints/y"
        held.report(accuracy=0.5, checkpoint=same)
        held.report(accuracy=0.5, checkpoint=none)
        assert set(listed(held)) == {same, none}


def test_what_a_program_of_its_own_saves_elsewhere_may_be_any_text(settings: Settings) -> None:
    with running(changed(settings, storage=BUCKET)) as service:
        _, held = an_attempt(service, trainer={"kind": "external"})
        held.report(accuracy=0.5, checkpoint=f"s3://mine/x{ELSEWHERE}")
        assert set(listed(held)) == {f"s3://mine/x{ELSEWHERE}"}


def test_the_name_of_a_local_checkpoint_may_have_a_question_mark(service: Api) -> None:
    _, held = an_attempt(service, trainer={"kind": "torch", "entrypoint": "train:train_fn"})
    held.report(accuracy=0.5, checkpoint="/saved/why?")
    assert set(listed(held)) == {"/saved/why?"}
