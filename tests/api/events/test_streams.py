"""Events and logs: complete, in order, resumable; streams end with the experiment or trial."""

import threading

import pytest
from anyio import to_thread

from service.api.trials import logs
from service.operations.attempts.rank_logs import BLOCK_BYTES
from tests.conftest import Api
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

TWO_WORKERS = {"kind": "external", "scaling": {"num_workers": 2}}


def test_events_are_numbered_without_gaps_and_listed_in_pages(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=0.5)
    held.finish()
    events = service.events(name)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["kind"] for event in events]
    assert kinds == [
        "experiment.created", "trial.created", "trial.running", "report", "attempt.ended", "trial.completed",
    ]  # fmt: skip
    page = service.get(f"/v1/experiments/{name}/events", params={"follow": False, "limit": 4})
    rest = service.get(f"/v1/experiments/{name}/events", params={"follow": False, "cursor": page["next_cursor"]})
    assert page["items"] + rest["items"] == events


def test_the_event_stream_follows_resumes_and_ends(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    got: list[str] = []
    first_came = threading.Event()

    def follow() -> None:
        path = f"/v1/experiments/{name}/events"
        with service.http.stream("GET", path, headers={"Last-Event-ID": "1"}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                got.append(line)
                first_came.set()

    follower = threading.Thread(target=follow)
    follower.start()
    held = service.ask(name)
    assert held
    assert first_came.wait(PATIENCE_SECONDS)
    held.report(accuracy=0.5)
    held.finish()
    follower.join(PATIENCE_SECONDS)
    assert not follower.is_alive()
    ids = [int(line.removeprefix("id: ")) for line in got if line.startswith("id: ")]
    assert ids == list(range(2, len(service.events(name)) + 1))
    assert "event: experiment.completed" in got


@pytest.mark.parametrize("what", ["experiments/{experiment}/events", "trials/{trial}/logs"])
@pytest.mark.parametrize("follow", [True, False])
def test_proxies_are_told_to_pass_on_what_is_followed_as_it_comes(service: Api, what: str, follow: bool) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=1)
    held.finish()
    path = f"/v1/{what.format(experiment=name, trial=held.trial)}"
    headers = service.http.get(path, params={"follow": follow}).headers
    assert headers.get("X-Accel-Buffering") == ("no" if follow else None)
    assert headers.get("Cache-Control") == ("no-cache" if follow else None)


@pytest.mark.parametrize("follow", [True, False])
def test_the_whole_log_follows_a_number_that_it_does_not_have(service: Api, follow: bool) -> None:
    """As after an experiment was deleted and its name used again."""
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=1)
    held.finish()
    newest = service.events(name)[-1]["seq"]
    path = f"/v1/experiments/{name}/events?follow={follow}&after="
    assert "experiment.created" in service.http.get(f"{path}{newest + 1}").text
    assert "experiment.created" not in service.http.get(f"{path}{newest}").text
    resumed = service.http.get(f"{path}{newest + 1}", headers={"Last-Event-ID": str(newest - 1)})
    assert "experiment.created" not in resumed.text
    assert "experiment.completed" in resumed.text


def test_pages_of_events_after_a_number_that_the_log_does_not_have_end(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=1)
    after = len(service.events(name)) + 1
    numbers, cursor = list[int](), dict[str, str]()
    while not numbers or cursor["cursor"]:
        query = {"follow": False, "after": after, "limit": 1, **cursor}
        page = service.get(f"/v1/experiments/{name}/events", params=query)
        numbers += [event["seq"] for event in page["items"]]
        cursor = {"cursor": page["next_cursor"]}
        if len(numbers) == 1:
            held.report(accuracy=2)  # now the log has an event of that number
    assert numbers == [event["seq"] for event in service.events(name)]


def test_logs_are_assembled_by_offset_and_shown_by_rank(service: Api) -> None:
    held = service.ask(service.create(trainer=TWO_WORKERS)["name"])
    assert held
    for _ in range(2):
        held.call("logs", 204, {"rank": 0, "offset": 0, "text": "one\ntwo\n"})
    held.call("logs", 204, {"rank": 0, "offset": 8, "text": "thrée\n"})
    held.call("logs", 204, {"rank": 1, "offset": 0, "text": "uno\n"})
    path = f"/v1/trials/{held.trial}/logs"
    assert service.http.get(path, params={"rank": 0}).text == "one\ntwo\nthrée\n"
    assert service.http.get(path, params={"rank": 0, "tail": 1}).text == "thrée\n"
    assert service.http.get(path).text == "[rank 0] one\n[rank 0] two\n[rank 0] thrée\n[rank 1] uno\n"
    assert service.http.get(path).headers["content-type"].startswith("text/plain")


def test_followed_logs_end_with_the_trial(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "first\n"})
    got: list[str] = []
    first_came = threading.Event()

    def follow() -> None:
        with service.http.stream("GET", f"/v1/trials/{held.trial}/logs", params={"follow": True}) as response:
            for text in response.iter_text():
                got.append(text)
                first_came.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert first_came.wait(PATIENCE_SECONDS)
    held.call("logs", 204, {"rank": 0, "offset": 6, "text": "last\n"})
    held.report(accuracy=1)
    held.finish()
    follower.join(PATIENCE_SECONDS)
    assert "".join(got) == "[rank 0] first\n[rank 0] last\n"


@pytest.mark.parametrize("params", [{}, {"tail": 5}])
def test_the_followed_log_of_a_queued_trial_is_that_of_its_first_attempt(service: Api, params: dict[str, int]) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    trial = service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.1}})["id"]
    with service.http.stream("GET", f"/v1/trials/{trial}/logs", params={"follow": True, **params}) as response:
        held = service.ask(name)
        assert held
        held.call("logs", 204, {"rank": 0, "offset": 0, "text": "first\n"})
        held.finish()
        assert response.read() == b"[rank 0] first\n"


def test_the_followed_log_of_a_queued_trial_ends_with_the_trial(service: Api) -> None:
    name = service.create()["name"]
    trial = service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.1}})["id"]
    with service.http.stream("GET", f"/v1/trials/{trial}/logs", params={"follow": True}) as response:
        service.post(f"/v1/trials/{trial}/stop")
        assert response.read() == b""


def test_a_followed_log_without_output_is_kept_alive_if_the_caller_wants_it(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "KEEP_ALIVE_PAUSES", 1)
    name = service.create(limits={"max_trials": 1})["name"]
    trial = service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.1}})["id"]
    path, params, wanted = f"/v1/trials/{trial}/logs", {"follow": True}, {"Paceline-Keep-Alive": "true"}
    with (
        service.http.stream("GET", path, params=params, headers=wanted) as kept,
        service.http.stream("GET", path, params=params) as plain,
    ):
        assert (kept.headers.get("Paceline-Keep-Alive"), plain.headers.get("Paceline-Keep-Alive")) == ("true", None)
        chunks = kept.iter_text()
        assert next(chunks) == "\0", "while the trial is queued"
        held = service.ask(name)
        assert held
        held.call("logs", 204, {"rank": 0, "offset": 0, "text": "first\n"})
        while (text := next(chunks).replace("\0", "")) == "":
            pass
        assert text == "[rank 0] first\n"
        assert next(chunks) == "\0", "while it runs"
        held.finish()
        assert "".join(chunks).strip("\0") == ""
        assert plain.read() == b"[rank 0] first\n"


def test_a_late_holder_cannot_write_logs(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(accuracy=1)
    held.finish()
    assert held.call("logs", 409, {"rank": 0, "offset": 0, "text": "late\n"})["type"] == "urn:paceline:error:lease-lost"


@pytest.mark.parametrize(("rank", "offset"), [(0, 10**12), (0, 2**62), (0, 2**63), (10**300, 0)])
def test_a_log_continues_at_its_offset(service: Api, rank: int, offset: int) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.call("logs", 422, {"rank": rank, "offset": offset, "text": "x"})
    assert service.http.get(f"/v1/trials/{held.trial}/logs").text == ""


def test_an_unfinished_last_line_is_shown_after_the_end(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "a\nlast words \u0000"})
    path = f"/v1/trials/{held.trial}/logs"
    assert service.http.get(path).text == "[rank 0] a\n[rank 0] last words ?\n"
    assert service.http.get(path, params={"rank": 0, "tail": 1}).text == "last words ?"
    held.finish("stopped")
    assert service.http.get(path, params={"follow": True}).text == "[rank 0] a\n[rank 0] last words ?\n"


def test_long_logs_are_complete_and_have_tails(service: Api) -> None:
    held = service.ask(service.create(trainer=TWO_WORKERS)["name"])
    assert held
    lines = "".join(f"line {number}\n" for number in range(60_000))
    for rank in (0, 1):
        held.call("logs", 204, {"rank": rank, "offset": 0, "text": lines})
    path = f"/v1/trials/{held.trial}/logs"
    assert service.http.get(path, params={"rank": 1}).text == lines
    assert len(service.http.get(path).text.splitlines()) == 120_000
    tail = service.http.get(path, params={"rank": 1, "tail": 50_000}).text
    assert tail == "".join(lines.splitlines(keepends=True)[-50_000:])
    assert service.http.get(path, params={"tail": 1}).text == "[rank 0] line 59999\n[rank 1] line 59999\n"
    assert service.http.get(path, params={"tail": 0}).text == ""
    assert service.http.get(path, params={"tail": 10**15, "rank": 1}).text == lines


@pytest.mark.parametrize("character", ["é", "あ", "🚲"])
def test_a_line_that_is_read_in_parts_keeps_its_characters(service: Api, character: str) -> None:
    held = service.ask(service.create()["name"])
    assert held
    line = "..." + character * (BLOCK_BYTES // len(character.encode()) * 2)
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": line})
    assert service.http.get(f"/v1/trials/{held.trial}/logs", params={"rank": 0}).text == line


def test_a_line_end_in_two_parts_before_a_long_line_does_not_end_the_log(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    first, second = "a" * (BLOCK_BYTES - 1), "b" * BLOCK_BYTES
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": f"{first}\r\n{second}\nlast\n"})
    held.finish("stopped")
    for params in ({}, {"follow": True}):
        shown = service.http.get(f"/v1/trials/{held.trial}/logs", params=params).text
        assert shown.replace("[rank 0] ", "").replace("\n", "") == f"{first}{second}last"


def test_a_followed_log_ends_when_its_experiment_is_deleted(
    service: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def pause(_silence: logs._Silence) -> str:
        await to_thread.run_sync(deleted.wait)
        return ""

    deleted = threading.Event()
    monkeypatch.setattr(logs._Silence, "pause", pause)
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "first\n"})
    with service.http.stream("GET", f"/v1/trials/{held.trial}/logs", params={"follow": True}) as response:
        texts = response.iter_text()
        assert next(texts) == "[rank 0] first\n"
        service.post(f"/v1/experiments/{name}/cancel")
        held.finish("stopped")
        service.call("DELETE", f"/v1/experiments/{name}", 204)
        deleted.set()
        assert "".join(texts) == ""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("left", [b"", b"\0" * 44, b"0000"], ids=["none", "NULs", "a part"])
def test_a_log_goes_on_after_a_power_failure_that_took_what_was_noted_about_it(service: Api, left: bytes) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "first\n"})
    [state] = service.app.state.context.settings.logs_dir.glob(f"{held.trial}/*/rank-0.state")
    state.write_bytes(left)
    held.call("logs", 204, {"rank": 0, "offset": 6, "text": "second\n"})
    assert service.http.get(f"/v1/trials/{held.trial}/logs", params={"rank": 0}).text == "first\nsecond\n"
