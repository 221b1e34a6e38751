"""A trial's logs have bounds: a quota, the ranks of its group, and files without holes."""

import concurrent.futures
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from search.numbers_in_messages import counted
from service.operations.attempts import log_file, rank_logs
from service.settings import BadSettings, Settings
from tests.conftest import Api, Held, changed, running
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

QUOTA = 10_000
NOTES = 2_000
"""Room for the notes, which the quota does not count."""


@pytest.fixture
def tight(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, max_log_bytes=QUOTA)) as service:
        yield service


def held_of(service: Api, workers: int = 1, **changes: object) -> Held:
    trainer = {"kind": "external", "scaling": {"num_workers": workers}}
    held = service.ask(service.create(trainer=trainer, **changes)["name"])
    assert held
    return held


def send(held: Held, text: str, offset: int = 0, rank: int = 0, status: int = 204) -> None:
    held.call("logs", status, {"rank": rank, "offset": offset, "text": text})


def logged(held: Held, **params: int | str) -> str:
    answer = held.api.http.get(f"/v1/trials/{held.trial}/logs", params=params)
    assert answer.status_code == 200
    return answer.text


def size_on_disk(settings: Settings) -> int:
    return sum(path.stat().st_size for path in settings.logs_dir.rglob("*") if path.is_file())


def test_a_few_bytes_at_large_offsets_make_no_large_file(service: Api, settings: Settings) -> None:
    held = held_of(service)
    for number in range(20):
        send(held, "x", offset=number * 49_000_000)
    assert size_on_disk(settings) < 4_000
    assert len(logged(held, rank=0)) < 4_000
    assert len(logged(held, tail=1)) < 200


def test_an_offset_beyond_any_output_is_refused(service: Api) -> None:
    held = held_of(service)
    send(held, "x", offset=10_000_000_001, status=422)
    send(held, "x", offset=10_000_000_000)


def test_a_gap_is_shown_and_what_follows_it_is_stored_once(service: Api) -> None:
    held = held_of(service)
    send(held, "before\n")
    for _ in range(2):
        send(held, "after\n", offset=1_000_007)
    send(held, "ter\nlast\n", offset=1_000_009)
    assert "\0" not in logged(held, rank=0)
    before, note, *after = (line for line in logged(held, rank=0).split("\n") if line)
    assert (before, after) == ("before", ["after", "last"])
    assert "1,000,000 bytes" in note


@pytest.mark.parametrize("start", ["", "one\n"])
def test_a_repeat_that_is_longer_adds_its_end(service: Api, start: str) -> None:
    held = held_of(service)
    if start:
        send(held, start)
    send(held, "one\ntwo\n")
    send(held, "ne\ntwo\nthrée\n", offset=1)
    send(held, "one\n")
    assert logged(held, rank=0) == "one\ntwo\nthrée\n"


def test_the_logs_of_a_trial_have_a_quota(tight: Api, settings: Settings) -> None:
    held = held_of(tight, workers=3)
    offset = 0
    for number in range(30):
        text = f"line {number}\n" * 100
        for rank in range(3):
            send(held, text, offset, rank)
        offset += len(text)
    assert size_on_disk(settings) <= QUOTA + NOTES
    for rank in range(3):
        text = logged(held, rank=rank)
        assert text.count("PACELINE_MAX_LOG_MB") == 1
        assert "PACELINE_MAX_LOG_MB" in logged(held, rank=rank, tail=1), "the note is the last line"
    assert logged(held, rank=0).startswith("line 0\n")
    held.report(accuracy=1)
    held.finish()
    assert held.shown()["status"] == "completed"


def test_the_quota_counts_all_attempts(tight: Api, settings: Settings) -> None:
    held = held_of(tight, failures={"max_retries": 20})
    for _ in range(5):
        send(held, "x" * (QUOTA // 2))
        held.fail()
        again = tight.ask(held.assignment["experiment"])
        assert again
        held = again
    assert size_on_disk(settings) <= QUOTA + NOTES


def test_a_chunk_larger_than_the_quota_is_cut(tight: Api) -> None:
    held = held_of(tight)
    send(held, "x" * 900_000)
    text = logged(held, rank=0)
    assert text.startswith("x" * QUOTA + "\n")
    assert len(text) < QUOTA + 200


def test_gaps_count_for_the_quota(tight: Api, settings: Settings) -> None:
    held = held_of(tight)
    for number in range(500):
        send(held, "x", offset=number * 1000)
    assert size_on_disk(settings) <= QUOTA + NOTES


def test_chunks_of_many_senders_at_once_keep_the_bounds(tight: Api, settings: Settings) -> None:
    held = held_of(tight)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: send(held, "a line\n" * 100), range(40)))
    assert logged(held, rank=0) == "a line\n" * 100


def test_validations_have_the_log_of_the_rank_after_the_last(service: Api) -> None:
    trainer = {"entrypoint": "a:b", "scaling": {"num_workers": 2}, "validation": {"entrypoint": "a:c"}}
    service.create(trainer=trainer)
    held = service.claim()
    assert held
    held.call("logs", 204, {"rank": 2, "offset": 0, "text": "validating\n"})
    held.call("logs", 422, {"rank": 3, "offset": 0, "text": "x"})
    assert service.http.get(f"/v1/trials/{held.trial}/logs").text == "[rank 2] validating\n"


@pytest.mark.parametrize(("more", "rank"), [({}, 2), ({"validation": {"entrypoint": "a:c"}}, 3)])
def test_a_dataset_function_has_the_log_of_the_rank_after_workers_and_validations(
    service: Api, more: dict[str, Any], rank: int
) -> None:
    datasets = {"entrypoint": "a:make"}
    service.create(trainer={"entrypoint": "a:b", "scaling": {"num_workers": 2}, "datasets": datasets, **more})
    held = service.claim()
    assert held
    held.call("logs", 204, {"rank": rank, "offset": 0, "text": "making\n"})
    problem = held.call("logs", 422, {"rank": rank + 1, "offset": 0, "text": "x"})
    assert problem["errors"][0]["message"].endswith(f", and rank {rank} is the dataset function's")
    assert service.http.get(f"/v1/trials/{held.trial}/logs").text == f"[rank {rank}] making\n"


@pytest.mark.parametrize(("workers", "rank"), [(1, 1), (1, 299), (4, 4), (4, 1_000_000)])
def test_a_rank_outside_the_group_has_no_log(service: Api, settings: Settings, workers: int, rank: int) -> None:
    held = held_of(service, workers)
    problem = held.call("logs", 422, {"rank": rank, "offset": 0, "text": "x"})
    assert problem["errors"] == [
        {"path": "rank", "message": f"must be at most {workers - 1}; the trial has up to {counted(workers, 'worker')}"}
    ]
    assert size_on_disk(settings) == 0
    send(held, "x", rank=workers - 1)


def test_a_tail_reads_only_the_end(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    held = held_of(service)
    offset = 0
    for number in range(8):
        text = f"{number}\n" + "a" * 900_000 + "\n"
        send(held, text, offset)
        offset += len(text)
    read: list[int] = []
    before = rank_logs._block_before

    def counted(*arguments: object) -> tuple[bytes, int]:
        block, start = before(*arguments)  # type: ignore[arg-type]
        read.append(len(block))
        return block, start

    monkeypatch.setattr(rank_logs, "_block_before", counted)
    assert logged(held, rank=0, tail=1) == "a" * (rank_logs.MAX_TAIL_LINE_BYTES - 1) + "\n"
    assert sum(read) <= rank_logs.MAX_TAIL_LINE_BYTES
    assert logged(held, rank=0, tail=20).startswith("6\n") or logged(held, rank=0, tail=20).endswith("a\n")


def test_a_log_survives_a_process_that_died_while_writing_it(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log_file.append(log, 0, b"one\n", lambda: QUOTA, "")
    with log.open("ab") as file:
        file.write(b"two\nthree\n")  # and the state was not written
    log_file.append(log, 4, b"two\n", lambda: QUOTA, "")
    assert log.read_bytes() == b"one\ntwo\n"
    log_file.append(log, 8, b"three\n", lambda: QUOTA, "")
    assert log.read_bytes() == b"one\ntwo\nthree\n"


def test_a_state_file_that_a_power_failure_has_made_longer_is_written_anew(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log_file.append(log, 0, b"one\n", lambda: QUOTA, "")
    log.with_suffix(log_file.STATE_SUFFIX).write_bytes(bytes(200))
    log_file.append(log, 10, b"two\n", lambda: QUOTA, "")
    log_file.append(log, 14, b"three\n", lambda: QUOTA, "")
    assert log.read_bytes().endswith(b"two\nthree\n")


@pytest.mark.parametrize("params", [{}, {"tail": 1}], ids=["whole", "tail"])
def test_a_log_that_is_deleted_while_it_is_read_is_left_out(
    service: Api, settings: Settings, params: dict[str, int]
) -> None:
    """The folder has its name, but no such file is found."""
    held = held_of(service)
    send(held, "one\n")
    (settings.logs_dir / held.trial / "1" / "rank-1.log").symlink_to("deleted")
    assert logged(held, **params) == "[rank 0] one\n"


def test_two_writers_of_a_log_take_turns(tmp_path: Path) -> None:
    log, is_writing, may_write = tmp_path / "rank-0.log", threading.Event(), threading.Event()

    def slow_room() -> int:
        is_writing.set()
        may_write.wait(PATIENCE_SECONDS)
        return QUOTA

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(log_file.append, log, 0, b"one\n", slow_room, "")
        assert is_writing.wait(PATIENCE_SECONDS)
        second = pool.submit(log_file.append, log, 4, b"two\n", lambda: QUOTA, "")
        concurrent.futures.wait([second], timeout=0.2)
        may_write.set()
        first.result()
        second.result()
    assert log.read_bytes() == b"one\ntwo\n"


def test_the_quota_is_a_setting() -> None:
    assert Settings.from_env({}).max_log_bytes == 100_000_000
    assert Settings.from_env({"PACELINE_MAX_LOG_MB": "0.5"}).max_log_bytes == 500_000
    with pytest.raises(BadSettings, match="PACELINE_MAX_LOG_MB"):
        Settings.from_env({"PACELINE_MAX_LOG_MB": "many"})


def test_a_lost_chunk_is_no_reason_to_refuse_the_next(service: Api) -> None:
    """While the service is away, a slot drops output beyond what it can queue."""
    held = held_of(service)
    send(held, "x", offset=400_000_000)
    send(held, "\nlast\n", offset=400_000_001)
    answer: httpx.Response = service.http.get(f"/v1/trials/{held.trial}/logs", params={"tail": 1})
    assert answer.text == "[rank 0] last\n"


def test_the_log_of_an_attempt_that_was_ended_without_its_holder_says_that_its_end_may_be_missing(
    service: Api, settings: Settings
) -> None:
    created = service.create(trainer={"kind": "torch", "entrypoint": "train:train_fn"})
    lost, ended = service.claim(), service.claim()
    assert lost
    assert ended
    for held in (lost, ended):
        send(held, "the first half\n")
    ended.fail("lost", "a worker process died")
    service.claim(lost=[{"trial": lost.trial, "attempt": 1}], nodes=[], status=204)
    assert created["status"] == "running"
    why = "the slot of agent 'here' that ran it is gone: its process was killed, or Ray was restarted"
    note = f"[paceline: {why}; output that had not arrived by then is missing]\n"
    assert logged(lost, attempt=1) == f"[rank 0] the first half\n{note}"
    assert logged(lost, attempt=1, rank=0, tail=1, follow=True) == f"the first half\n{note}"
    assert logged(ended, attempt=1, rank=0) == "the first half\n"


def test_an_attempt_that_does_not_exist_has_no_log(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    answer = service.http.get(f"/v1/trials/{held.trial}/logs", params={"attempt": 2})
    assert answer.status_code == 404
    assert f"trial {held.trial} has no attempt 2; attempts so far: 1" in answer.json()["detail"]


def test_a_tail_can_be_read_again_from_where_it_began(service: Api) -> None:
    """Ranks that have written nothing by then begin at their start."""
    held = held_of(service, workers=3)
    send(held, "a\nb\nc\n")
    send(held, "d\n", rank=1)
    path = f"/v1/trials/{held.trial}/logs"
    first = service.http.get(path, params={"tail": 1})
    assert first.headers["Paceline-Log-Start"] == "1/0:4,1:0"
    send(held, "e\n", offset=6)
    send(held, "f\n", rank=2)
    again = service.http.get(path, params={"start": first.headers["Paceline-Log-Start"]})
    assert again.text == "[rank 0] c\n[rank 0] e\n[rank 1] d\n[rank 2] f\n"
    assert logged(held, rank=1, start="1/0:4,1:0") == "d\n"
    assert logged(held, rank=0, start="1/0:4,1:0") == "c\ne\n"


def test_a_tail_is_read_again_from_its_own_attempt(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    send(held, "a\nb\n")
    path = f"/v1/trials/{held.trial}/logs"
    start = service.http.get(path, params={"tail": 1}).headers["Paceline-Log-Start"]
    send(held, "c\n", offset=4)
    held.fail("lost", "a worker process died")
    again = service.ask(name)
    assert again
    assert (again.trial, logged(again, start=start, rank=0)) == (held.trial, "b\nc\n")
    send(again, "of the second attempt\n")
    assert logged(held, start=start, attempt=1, rank=0) == "b\nc\n"
    problem = service.get(path, 422, params={"start": start, "attempt": 2})
    assert problem["errors"] == [
        {"path": "attempt", "message": "is 2, but start is of attempt 1; leave out one of the two"}
    ]


def test_a_start_beyond_the_log_is_at_its_end(service: Api) -> None:
    """No file system has so large a file, so that not even a call that looks there succeeds."""
    held = held_of(service)
    send(held, "a\n")
    start = "1/0:999999999999999,1:5"
    assert logged(held, start=start) == ""
    with service.http.stream("GET", f"/v1/trials/{held.trial}/logs", params={"start": start, "follow": True}) as answer:
        send(held, "b\n", offset=2)
        held.finish()
        assert answer.read() == b"[rank 0] b\n"


def test_the_tail_of_a_trial_without_an_attempt_begins_with_its_first_one(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    queued = service.post(f"/v1/experiments/{name}/trials", 201, json={"params": {"lr": 0.5}})["id"]
    answer = service.http.get(f"/v1/trials/{queued}/logs", params={"tail": 1})
    assert (answer.text, answer.headers["Paceline-Log-Start"]) == ("", "0/")


@pytest.mark.parametrize(
    "start",
    [
        "",
        "0",
        "0:",
        "0:4,1:0",
        "1/0",
        "1/0:",
        "/0:1",
        "1/a:1",
        "1/0:-1",
        "-1/0:1",
        "1/0:1,",
        "1/0:1;1:2",
        "1/0:" + "1" * 16,
        "1/\n",
    ],
)
def test_a_start_that_no_answer_named_is_refused(service: Api, start: str) -> None:
    held = held_of(service)
    problem = service.get(f"/v1/trials/{held.trial}/logs", 422, params={"start": start})
    assert [error["path"] for error in problem["errors"]] == ["start"]


def test_a_start_that_is_longer_than_any_header_is_refused(service: Api) -> None:
    held = held_of(service)
    problem = service.get(f"/v1/trials/{held.trial}/logs", 422, params={"start": "1/" + ",".join(["0:1"] * 2000)})
    assert [error["path"] for error in problem["errors"]] == ["start"]
