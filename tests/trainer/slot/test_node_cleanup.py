"""Which checkpoints an attempt removes, and when. It starts no Ray: the test makes the workers' reports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService
from trainer.client.addresses import ServiceAddresses
from trainer.slot.assignment import Assignment
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.attempt_state import LeaseLost, Preempted
from trainer.slot.checkpoints.checkpoint_ledger import CheckpointLedger
from trainer.slot.checkpoints.checkpoint_removal import remove_all_except
from trainer.worker.messages import RankReport

EARLIER = {"earlier_checkpoints": ["/s/1/a", "/s/1/b"], "earlier_runs": ["x/trial-0-attempt-1", "x/trial-0-attempt-2"]}


def no_validation(uri: str, fn_kwargs: Any) -> Any:
    raise AssertionError("no report asks for one")


class NoRuns:
    """There are no workers: the test reports."""

    placement_group = None

    def wake(self, *, ending: bool = False) -> None:
        pass

    def end_workers(self) -> None:
        pass


class Saving:
    def __init__(self, service: FakeService, **fields: Any) -> None:
        self.service = service
        self.trial = service.add_trial({"entrypoint": "train:train_fn"}, **fields)
        self.discarded: list[str] = []
        assignment = Assignment.from_json(service.assign(self.trial))
        runs: Any = NoRuns()
        self.attempt = Attempt(
            assignment,
            ServiceAddresses(service.url),
            asyncio.get_running_loop(),
            runs,
            self.discarded.append,
            no_validation,
        )
        self.sequence = 0

    async def save(self) -> str:
        """Report with a checkpoint; its URI, once the service has answered."""
        path = f"{self.service.storage}/{self.attempt.run_name}/checkpoint_{self.sequence}"
        sequence, self.sequence = self.sequence, self.sequence + 1
        assert await self.attempt.barrier.report(RankReport(sequence, 0, 1, {"loss": 1.0}, path)) == "continue"
        return path

    async def have_discarded(self, *expected: str) -> None:
        await asyncio.to_thread(until, lambda: self.discarded == list(expected), f"{expected} gone: {self.discarded}")


@asynccontextmanager
async def saving(storage: Path, **fields: Any) -> AsyncIterator[Saving]:
    with FakeService(str(storage)).serving() as service:
        one = Saving(service, **fields)
        one.attempt.start()
        yield one
        await asyncio.to_thread(one.attempt.conclude, None, lambda _rank: ("", None, None))


def test_only_a_trials_newest_checkpoints_are_kept_and_no_folder_without_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with saving(tmp_path, keep_checkpoints=2, **EARLIER) as one:
            first = await one.save()
            await one.have_discarded("/s/1/a")
            await one.save()
            runs = [f"{tmp_path}/{run}" for run in reversed(EARLIER["earlier_runs"])]
            await one.have_discarded("/s/1/a", "/s/1/b", *runs)
            await one.save()
            await one.have_discarded("/s/1/a", "/s/1/b", *runs, first)

    asyncio.run(run())


def test_a_checkpoint_that_is_saved_in_the_background_after_a_later_one_does_not_replace_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with saving(tmp_path) as one:
            assert await one.attempt.barrier.report(RankReport(0, 0, 1, {"loss": 1.0}, None)) == "continue"
            one.sequence = 1
            newest = await one.save()
            late = f"{tmp_path}/{one.attempt.run_name}/late"
            one.attempt.checkpoint_saved(0, late)
            await one.have_discarded(late)
        assert newest not in one.discarded

    asyncio.run(run())


def test_an_attempt_that_has_lost_its_lease_removes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with saving(tmp_path, **EARLIER) as one:
            one.service.lose(one.trial)
            path = f"{tmp_path}/{one.attempt.run_name}/checkpoint_0"
            await one.attempt.barrier.report(RankReport(0, 0, 1, {"loss": 1.0}, path))
            await asyncio.to_thread(
                until, lambda: isinstance(one.attempt.state.current, LeaseLost), "the lease is lost"
            )
        assert one.discarded == []

    asyncio.run(run())


def test_directories_that_are_not_kept_are_removed_and_files_stay(tmp_path: Path) -> None:
    for name in ("checkpoint_1", "checkpoint_2", "half"):
        (tmp_path / "run" / name / "shards").mkdir(parents=True)
    (tmp_path / "run" / "snapshot.json").touch()
    remove_all_except(["checkpoint_2", "of another run"], f"file://{tmp_path}/run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["checkpoint_2", "snapshot.json"]
    remove_all_except([], str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_a_failed_attempt_keeps_known_checkpoints_and_one_given_back_keeps_all(tmp_path: Path) -> None:
    async def play() -> None:
        async with saving(tmp_path) as one:
            await one.save()
            second = await one.save()
            await one.have_discarded(f"{tmp_path}/{one.attempt.run_name}/checkpoint_0")
            ledger = one.attempt.checkpoints
            assert (ledger.known_names(), ledger.folder()) == (
                [Path(second).name],
                f"{tmp_path}/{one.attempt.run_name}",
            )
            ledger._keep = 2
            ledger.add_known(2, ledger.uri_of(f"{tmp_path}/{one.attempt.run_name}/epochs/3"))
            assert ledger.known_names() == [Path(second).name, "epochs"]
            assert one.attempt.knows_its_checkpoints()
            one.attempt.end_now(Preempted())
            assert not one.attempt.knows_its_checkpoints()

    asyncio.run(play())


def after_earlier_attempts(tmp_path: Path, remove: Callable[[str], None], **more: Any) -> CheckpointLedger:
    with FakeService(str(tmp_path)).serving() as service:
        fields: dict[str, Any] = {**EARLIER, **more}
        trial = service.add_trial({"entrypoint": "train:train_fn"}, **fields)
        return CheckpointLedger(Assignment.from_json(service.assign(trial)), remove)


def test_a_checkpoint_that_the_service_wants_to_be_kept_is_removed_only_when_it_no_longer_does(tmp_path: Path) -> None:
    removed: list[str] = []
    ledger = after_earlier_attempts(tmp_path, removed.append)
    ledger.add_known(0, "/2/a", kept=["/s/1/a", "/2/a"])
    ledger.add_known(1, "/2/b", kept=["/s/1/a", "/2/b"])
    assert removed == ["/s/1/b", "/2/a"], "the runs of the earlier attempts stay, too"
    ledger.add_known(2, "/2/c")
    runs = [f"{tmp_path}/{run}" for run in reversed(EARLIER["earlier_runs"])]
    assert removed[2:] == ["/s/1/a", "/2/b", *runs]


def test_a_long_list_of_kept_checkpoints_is_not_searched_for_each_of_them(tmp_path: Path) -> None:
    class Listed(list[str]):
        def __contains__(self, _: object) -> bool:
            raise AssertionError("the whole list would be read for each checkpoint")

    removed: list[str] = []
    ledger = after_earlier_attempts(tmp_path, removed.append)
    ledger.add_known(0, "/2/a", kept=Listed(["/s/1/a", "/2/a"]))
    assert removed == ["/s/1/b"]


def test_a_better_checkpoint_replaces_the_best_one_of_an_earlier_attempt(tmp_path: Path) -> None:
    removed: list[str] = []
    ledger = after_earlier_attempts(tmp_path, removed.append)
    ledger.add_known(0, "/2/a", kept=["/s/1/a", "/2/a"])
    ledger.add_known(1, "/2/b", kept=["/2/b"])
    runs = [f"{tmp_path}/{run}" for run in reversed(EARLIER["earlier_runs"])]
    assert removed == ["/s/1/b", "/s/1/a", "/2/a", *runs]
    ledger.add_known(2, "/2/c", kept=["/2/b", "/2/c"])
    assert removed[5:] == []


def test_the_checkpoint_that_an_attempt_has_resumed_from_is_removed_when_the_attempt_has_ended(tmp_path: Path) -> None:
    async def play() -> None:
        async with saving(tmp_path, resume={"uri": "/s/1/b", "step": 2}, **EARLIER) as one:
            first = await one.save()
            second = await one.save()
            await one.have_discarded("/s/1/a", first)
        runs = [f"{tmp_path}/{run}" for run in reversed(EARLIER["earlier_runs"])]
        assert one.discarded[2:] == ["/s/1/b", *runs]
        assert second not in one.discarded

    asyncio.run(play())


def test_an_attempt_that_has_saved_nothing_removes_nothing_of_earlier_ones(tmp_path: Path) -> None:
    removed: list[str] = []
    ledger = after_earlier_attempts(tmp_path, removed.append, resume={"uri": "/s/1/b", "step": 2})
    ledger.close()
    assert removed == []


@pytest.mark.parametrize(("storage", "name"), [("/s/a?b", "lr?0"), ("s3://b/c?region=eu", "lr-0"), ("/s", "a?b/c")])
def test_a_question_mark_begins_a_query_in_a_uri_alone(tmp_path: Path, storage: str, name: str) -> None:
    with FakeService(storage).serving() as service:
        trial = service.add_trial({"entrypoint": "train:train_fn"})
        assignment = Assignment.from_json(service.assign(trial))
    ledger, run = CheckpointLedger(assignment, lambda _uri: None), assignment.run_name
    folder, mark, query = storage.partition("?") if "://" in storage else (storage, "", "")
    ledger.add_known(0, ledger.uri_of(f"{folder.removeprefix('s3://')}/{run}/{name}"))
    assert list(ledger._known) == [f"{folder}/{run}/{name}{mark}{query}"]
    assert ledger.known_names() == [name.partition("/")[0]]


def test_a_name_that_another_report_has_used_is_not_used_again(tmp_path: Path) -> None:
    with FakeService(str(tmp_path)).serving() as service:
        trial = service.add_trial({"entrypoint": "train:train_fn"})
        ledger = CheckpointLedger(Assignment.from_json(service.assign(trial)), lambda _uri: None)
    names = [[ledger.unused_name(sequence, "last") for _rank in range(2)] for sequence in range(3)]
    assert names == [["last", "last"], ["last-1", "last-1"], ["last-2", "last-2"]]
    assert [ledger.unused_name(sequence, "last-2") for sequence in (2, 3)] == ["last-2", "last-2-3"]
    assert ledger.unused_name(4, "./last/") == "last-4"


def test_no_checkpoint_is_saved_in_the_directory_of_another_one(tmp_path: Path) -> None:
    """It would be removed with the other one."""
    with FakeService(str(tmp_path)).serving() as service:
        trial = service.add_trial({"entrypoint": "train:train_fn"})
        ledger = CheckpointLedger(Assignment.from_json(service.assign(trial)), lambda _uri: None)
    asked = ["epoch-1", "epoch-1/batch-10", "epochs/1", "epochs", "epochs/2", "epochs-3/1", "epoch-10"]
    names = [[ledger.unused_name(sequence, name) for _rank in range(2)] for sequence, name in enumerate(asked)]
    used = ["epoch-1", "epoch-1-1/batch-10", "epochs/1", "epochs-3", "epochs/2", "epochs-3-5/1", "epoch-10"]
    assert names == [[name] * 2 for name in used]


def test_the_run_of_a_kept_checkpoint_stays_although_the_slot_has_not_got_it_as_an_earlier_one(tmp_path: Path) -> None:
    """A pinned one that earlier attempts have missed: someone may have put it back."""
    removed: list[str] = []
    ledger = after_earlier_attempts(tmp_path, removed.append, earlier_checkpoints=[])
    one, two = (f"{tmp_path}/{run}" for run in EARLIER["earlier_runs"])
    ledger.add_known(0, "/2/a", kept=[f"{two}/pinned", "/2/a"])
    assert removed == [one]
    ledger.add_known(1, "/2/b")
    assert removed == [one, "/2/a", two]
