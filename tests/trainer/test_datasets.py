"""Datasets of Ray Data on a real Ray: what each rank reads, and what is left of it afterwards."""

import inspect
import io
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trainer.conftest import set_constant, until
from tests.trainer.fake_service import FakeService
from trainer.wire import DatasetFormat, FailureKind, Outcome
from trainer.worker.datasets.dataset_server import DatasetServer
from trainer.worker.rank_session import RankSession

pytestmark = [pytest.mark.ray, pytest.mark.slow]

USER_CODE = Path(__file__).parent / "user_code"
ROWS = 40
WHOLE = {"num_workers": 2, "resources_per_worker": {"CPU": 4}}
"""Workers that hold all CPUs of the tests' cluster, as two workers do on a machine with two."""

SPARING = {"execution": {"resource_limits": {"CPU": 2}}}
"""As many tasks at a time as a small machine has processors."""

AddReader = Callable[..., str]


@pytest.fixture
def add_reader(service: FakeService, record: Path) -> AddReader:
    """Queue a trial of `user_code/read_data.py`; its package also has `numbers.csv` with the numbers 0 to 39 as x."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        for name in ("read_data.py", "shares.py"):
            archive.write(USER_CODE / name, name)
        archive.writestr("numbers.csv", "x\n" + "".join(f"{number}\n" for number in range(ROWS)))
    package_id = service.add_package(package.getvalue(), "package.zip")

    def add(datasets: Any, function: str = "read", *, trainer: dict[str, Any] | None = None, **fields: Any) -> str:
        config = {"record": str(record), **fields.pop("config", {})}
        spec = {
            "entrypoint": f"read_data:{function}",
            "package": package_id,
            "scaling": WHOLE,
            "datasets": datasets,
            **({"data": SPARING} if datasets is not None else {}),
            **(trainer or {}),
        }
        return service.add_trial(spec, config, **fields)

    return add


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """A folder of Parquet files with the numbers 0 to 39 as x."""
    import pyarrow as pa  # noqa: PLC0415 - heavy
    import pyarrow.parquet as pq  # noqa: PLC0415

    folder = tmp_path / "numbers"
    folder.mkdir()
    for first in range(0, ROWS, 10):
        pq.write_table(pa.table({"x": list(range(first, first + 10))}), folder / f"{first}.parquet")
    return folder


def read_rows(record: Path, name: str = "train") -> dict[int, list[list[int]]]:
    """What each rank has read of a dataset, epoch by epoch."""
    found: dict[int, list[list[int]]] = {}
    for line in record.read_text().splitlines():
        match line.split():
            case [rank, "epoch", _, read, _, *rows] if read == name:
                found.setdefault(int(rank), []).append([int(row) for row in rows])
    return found


def pids(record: Path) -> set[str]:
    return {line.split()[2] for line in record.read_text().splitlines() if line.split()[1] == "pid"}


def data_processes() -> list[str]:
    """The classes of the living actors of datasets."""
    return sorted(name for name, _ in living_actors() if name.startswith(("Dataset", "Split")))


def pid_of_process(name: str) -> int:
    """The process of the only actor of this class."""
    (pid,) = [pid for one, pid in living_actors() if one == name]
    return pid


def living_actors() -> list[tuple[str, int]]:
    """Their classes and process ids."""
    from ray._private.state import actors  # noqa: PLC0415 - heavy

    living = [actor for actor in actors().values() if actor["State"] != "DEAD"]
    return [(actor["ActorClassName"], actor["Pid"]) for actor in living]


def test_each_rank_reads_an_equal_share_in_every_epoch_although_the_workers_hold_all_cpus(
    service: FakeService, add_reader: AddReader, record: Path, numbers: Path
) -> None:
    datasets = {"train": {"read": "parquet", "paths": [str(numbers)]}}
    first = add_reader(datasets)
    ended = service.finished(first)
    assert ended.outcome == Outcome.COMPLETED, ended
    assert ended.phases is not None
    assert ended.phases.data > 0
    shares = read_rows(record)
    assert {rank: [len(rows) for rows in epochs] for rank, epochs in shares.items()} == {0: [20, 20], 1: [20, 20]}
    for epoch in (0, 1):
        assert sorted(shares[0][epoch] + shares[1][epoch]) == list(range(ROWS))

    left_early, again = add_reader(datasets, "leave_early"), add_reader(datasets)
    assert service.finished(left_early).outcome == Outcome.COMPLETED, service.finishes[left_early]
    assert service.finished(again).outcome == Outcome.COMPLETED, service.finishes[again]
    assert len(pids(record)) == 2
    until(lambda: not data_processes(), "no process of a dataset is left")


def test_a_killed_worker_ends_the_epoch_and_the_retry_reads_on(
    service: FakeService, add_reader: AddReader, record: Path, numbers: Path
) -> None:
    datasets = {"train": {"read": "parquet", "paths": [str(numbers)]}}
    killed = add_reader(datasets, config={"die_at": 0})
    error = service.finished(killed).error
    assert error is not None
    assert error.kind == FailureKind.LOST
    saved = [report.checkpoint for report in service.reports[killed] if report.checkpoint]
    retry = add_reader(datasets, config={"die_at": 0}, resume={"uri": saved[-1], "step": 1})
    assert service.finished(retry).outcome == Outcome.COMPLETED, service.finishes[retry]
    epochs = [line.split()[2] for line in record.read_text().splitlines() if line.split()[1] == "epoch"]
    assert epochs == ["0", "0", "1", "1"]
    until(lambda: not data_processes(), "no process of a dataset is left")


@pytest.mark.parametrize(("process", "waits_before"), [("DatasetServer", 0), ("SplitCoordinator", 1)])
def test_the_death_of_a_process_of_the_datasets_is_a_loss(
    service: FakeService, add_reader: AddReader, record: Path, numbers: Path, process: str, waits_before: int
) -> None:
    go = numbers.with_name("go")
    datasets = {"train": {"read": "parquet", "paths": [str(numbers)]}}
    trial = add_reader(datasets, "read_when_told", config={"go": str(go), "waits_before": waits_before})
    until(lambda: record.exists() and record.read_text().count("waits") == 2, "both ranks wait")
    until(lambda: data_processes().count(process) == 1, "those of the trials before have ended")
    os.kill(pid_of_process(process), signal.SIGKILL)
    until(lambda: process not in data_processes(), f"{process} is dead")
    go.touch()
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.LOST
    assert error.message.startswith("a process of the datasets has died (rank ")
    assert f"class_name: {process}" in (error.traceback or "")


FILE_OF_NUMBERS = {"train": {"read": "csv", "paths": ["numbers.csv"]}}


@pytest.mark.parametrize(
    ("datasets", "what", "why"),
    [
        (FILE_OF_NUMBERS, "the next batch of the dataset 'train'", "the other ranks do not loop over it, as all ranks"),
        ({"entrypoint": "read_data:make_when_told"}, "ray.train.get_dataset_shard()", "the function that makes the"),
    ],
)
def test_a_rank_that_waits_long_for_data_says_so_in_the_log(
    service: FakeService,
    add_reader: AddReader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    datasets: Any,
    what: str,
    why: str,
) -> None:
    look = RankSession.run.__globals__["noticing_waits"].__wrapped__.__globals__["_look"]
    set_constant(monkeypatch, look, "LOOK_SECONDS", 0.05)  # it travels with the next slot
    set_constant(monkeypatch, look, "NOTICE_SECONDS", 0.0)
    go = tmp_path / "go"
    trial = add_reader(datasets, "read_later_on_rank_1", config={"go": str(go)})
    service.wait_for(lambda: f"rank 0 has waited for {what} for " in service.log(trial, 0), what="the notice")
    assert f" s; usually, {why}" in service.log(trial, 0)
    go.touch()
    assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_function_of_the_package_makes_datasets(
    service: FakeService, add_reader: AddReader, record: Path, reuse_workers: bool
) -> None:
    """Its helpers run in Ray Data's tasks, which do not have the package; shuffling and sorting reserve CPUs, too."""
    trial = add_reader(
        {"entrypoint": "read_data:make"},
        trainer={"reuse_workers": reuse_workers, "data": {"split": ["train"], **SPARING}},
        config={"names": ["train", "ordered"], "epochs": 1},
    )
    assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]
    shares, whole = read_rows(record), read_rows(record, "ordered")
    even = [2 * number for number in range(ROWS)]
    assert sorted(shares[0][0] + shares[1][0]) == even
    assert whole == {0: [even], 1: [even]}
    until(lambda: not data_processes(), "no process of a dataset is left")


def test_a_materialized_dataset_is_made_once_for_all_trials(
    service: FakeService, add_reader: AddReader, record: Path
) -> None:
    service.parallelism = 2
    small = {"scaling": {"num_workers": 1}, "data": {"split": [], **SPARING}}
    datasets = {"entrypoint": "read_data:make", "materialize": True}
    trials = [add_reader(datasets, trainer=small, config={"names": ["ordered"]}, params={}) for _ in range(3)]
    for trial in trials:
        assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]
    assert [line for line in record.read_text().splitlines() if " made " in line] == [
        "- made ['names', 'record'] in paceline-slot."
    ]
    assert read_rows(record, "ordered") == {0: [[2 * number for number in range(ROWS)]] * 6}


def test_files_of_the_package_are_read_by_their_relative_path(
    service: FakeService, add_reader: AddReader, record: Path
) -> None:
    datasets = {"train": {"read": "csv", "paths": ["numbers.csv"], "split": False}}
    trial = add_reader(datasets, config={"epochs": 1})
    assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]
    assert read_rows(record) == {0: [[*range(ROWS)]], 1: [[*range(ROWS)]]}


WRONG = [
    (None, FailureKind.CANNOT_START, "the specification has none; add trainer.datasets: {train: {read: parquet"),
    (
        {"val": {"read": "csv", "paths": ["numbers.csv"]}},
        FailureKind.CANNOT_START,
        "there is no dataset 'train'; the trial has: val",
    ),
    (
        {"train": {"read": "csv", "paths": ["/nowhere/at/all"]}},
        FailureKind.CANNOT_START,
        "trainer.datasets.train.paths: FileNotFoundError",
    ),
    (
        {"train": {"read": "text", "paths": ["numbers.csv"], "options": {"encodin": "utf-8"}}},
        FailureKind.CANNOT_START,
        "trainer.datasets.train.options.encodin: TypeError: read_text() got an unexpected keyword argument 'encodin'",
    ),
    ({"train": {"read": "delta", "paths": ["/t"]}}, FailureKind.CANNOT_START, "trainer.datasets.train.read: ImportE"),
    (
        {"entrypoint": "read_data:make_badly"},
        FailureKind.USER_ERROR,
        "ValueError: no shard of this size (dataset function read_data:make_badly, read_data.py:",
    ),
    (
        {"entrypoint": "read_data:mak"},
        FailureKind.CANNOT_START,
        "read_data.py has no function 'mak'; it has: leave_early, make,",
    ),
    (
        {"entrypoint": "read_data:make_and_exit"},
        FailureKind.USER_ERROR,
        "os._exit(3) was called; return, or raise an exception, instead (dataset function read_data:make_and_exit, ",
    ),
    *(
        (
            {"entrypoint": "read_data:make_and_crash", "materialize": materialize},
            FailureKind.USER_ERROR,
            "the process of the dataset function read_data:make_and_crash crashed with SIGSEGV (read_data.py:",
        )
        for materialize in (False, True)
    ),
    ({"entrypoint": "read_data:make_and_be_killed"}, FailureKind.LOST, "a process of the datasets has died (rank "),
    (
        {"entrypoint": "read_data:make_with_a_bad_task"},
        FailureKind.USER_ERROR,
        "ValueError: no column 'y' (a task of Ray Data, read_data.py:",
    ),
    ({"entrypoint": "read_data:make_a_list"}, FailureKind.CANNOT_START, "make_a_list returned list; it must return"),
]


def test_what_is_wrong_with_datasets_is_the_users_error_and_says_what_to_change(
    service: FakeService, add_reader: AddReader
) -> None:
    small = {"scaling": {"num_workers": 1}}
    service.parallelism = 3
    trials = [add_reader(datasets, trainer=small, experiment=f"x-{n}") for n, (datasets, _, _) in enumerate(WRONG)]
    for trial, (datasets, kind, says) in zip(trials, WRONG, strict=True):
        error = service.finished(trial).error
        assert error is not None, datasets
        assert says in error.message
        assert error.kind == kind, error.message


@pytest.mark.parametrize("materialize", [False, True])
def test_what_a_dataset_function_prints_is_in_the_log_of_the_rank_after_the_last(
    service: FakeService, add_reader: AddReader, monkeypatch: pytest.MonkeyPatch, materialize: bool
) -> None:
    monkeypatch.setenv("DATA_KEY", "correct horse battery")
    small = {"scaling": {"num_workers": 1}, "secrets": {"DATA_KEY": {"from_agent_env": "DATA_KEY"}}}
    trial = add_reader({"entrypoint": "read_data:make", "materialize": materialize}, trainer=small, params={})
    assert service.finished(trial).outcome == Outcome.COMPLETED, service.finishes[trial]
    assert "the dataset function prints ***\n" in service.log(trial, 1)
    assert "the dataset function warns\n" in service.log(trial, 1)
    assert "the dataset function" not in service.log(trial, 0)


def test_a_function_that_fails_is_called_once_for_all_ranks(
    service: FakeService, add_reader: AddReader, record: Path
) -> None:
    error = service.finished(add_reader({"entrypoint": "read_data:make_badly"})).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert record.read_text().count("- made badly") == 1


@pytest.mark.parametrize(
    ("preprocess_on", "why"),
    [
        ({"resources": {"CPU": 1}}, ", which reserves 1 CPU by trainer.data.preprocess_on: the workers of trials hold"),
        ({"label_selector": {"tier": "cpu"}}, " on a node with tier=cpu by trainer.data.preprocess_on: no living node"),
        (
            {"resources": {"preprocess": 1}, "label_selector": {"tier": "!gpu"}},
            "no such node has the resource 'preprocess': start one with `ray start --resources '{\"preprocess\": 1}'`",
        ),
    ],
)
def test_tasks_without_room_for_what_they_reserve_fail_with_the_reason(
    service: FakeService,
    add_reader: AddReader,
    numbers: Path,
    monkeypatch: pytest.MonkeyPatch,
    preprocess_on: dict[str, Any],
    why: str,
) -> None:
    room = DatasetServer._make.__globals__["await_room"]
    for name in ("ROOM_SECONDS", "NODE_SECONDS"):
        set_constant(monkeypatch, room, name, 2.0)  # it travels with the next slot
    datasets = {"train": {"read": "parquet", "paths": [str(numbers)]}}
    trial = add_reader(datasets, trainer={"data": {"preprocess_on": preprocess_on}})
    error = service.finished(trial).error
    assert error is not None
    assert error.message.startswith("no node has room for a task of the datasets")
    assert why in error.message
    assert error.kind == FailureKind.CANNOT_START


@pytest.mark.parametrize("format_", DatasetFormat, ids=str)
def test_each_format_is_a_reader_of_ray_data_that_takes_paths_first(format_: DatasetFormat) -> None:
    import ray.data  # noqa: PLC0415 - heavy

    first = next(iter(inspect.signature(getattr(ray.data, f"read_{format_}")).parameters))
    assert first in {"paths", "path", "uri"}


def test_the_example_saves_one_plain_model_and_continues_from_it(service: FakeService) -> None:
    """The model lacks the wrapper of several workers: the checkpoint can be loaded where there is one."""
    import torch  # noqa: PLC0415 - heavy

    example = Path(__file__).parents[2] / "examples" / "data"
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        for name in ("train.py", "data.py"):
            archive.write(example / name, name)
    spec = yaml.safe_load((example / "experiment.yaml").read_text())
    trainer = spec["trainer"] | {"package": service.add_package(package.getvalue(), "package.zip")}
    first = service.add_trial(
        trainer, spec["config"] | {"lr": 0.1, "epochs": 2}, params={"lr": 0.1}, keep_checkpoints=9
    )
    finish = service.finished(first)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    saved = service.reports[first][-1].checkpoint
    assert saved
    assert torch.load(Path(saved, "state.pt"), weights_only=True)["model"].keys() == {"weight", "bias"}

    resume = {"uri": saved, "step": 2}
    resumed = service.add_trial(trainer, spec["config"] | {"lr": 0.1, "epochs": 3}, params={"lr": 0.1}, resume=resume)
    finish = service.finished(resumed)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    assert [report.metrics["epoch"] for report in service.reports[resumed]] == [3]
