"""Trials that fail on a real Ray: which failure the service gets, with what message."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.conftest import OOM_COUNTER, USER_CODE, Add, failure_in_new_processes, free_the_cluster
from tests.trainer.fake_service import FakeService
from trainer.wire import Decision, FailureKind, Outcome
from trainer.worker.failures import TASK_ADVICE

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def errors_on_a_gpu(service: FakeService) -> Iterator[dict[str, str]]:
    """The package as a part of `trainer`. Its idle slot would take the room of the other tests' slots."""
    yield {"package": service.add_package(USER_CODE.with_name("errors_on_a_gpu.py").read_text())}
    free_the_cluster()


@pytest.fixture
def crashes(service: FakeService) -> Iterator[dict[str, str]]:
    """The package as a part of `trainer`."""
    yield {"package": service.add_package(USER_CODE.with_name("crashes.py").read_text())}
    free_the_cluster()


@pytest.fixture
def oom_counter() -> Iterator[str]:
    """The kernel's count of its kills for memory, where the workers look."""
    OOM_COUNTER.write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    yield str(OOM_COUNTER)
    OOM_COUNTER.unlink()


@pytest.mark.parametrize(("counted", "kind"), [(True, FailureKind.OUT_OF_MEMORY), (False, FailureKind.USER_ERROR)])
def test_a_process_of_a_data_loader_that_the_kernel_kills_for_memory_is_out_of_memory(
    service: FakeService, add: Add, oom_counter: str, counted: bool, kind: FailureKind
) -> None:
    package = service.add_package(USER_CODE.with_name("loads_data.py").read_text())
    spec = {"package": package, "entrypoint": "train:load", "scaling": {"num_workers": 1}}
    error = service.finished(add(trainer=spec, config={"counter": oom_counter if counted else None})).error
    assert error is not None
    assert error.kind == kind
    assert error.message.startswith("RuntimeError: DataLoader worker (pid")
    assert error.message.endswith(": the kernel killed for lack of memory") is counted


def test_a_secret_that_the_agent_does_not_have_fails_the_trial_by_its_name(service: FakeService, add: Add) -> None:
    end = service.finished(add(trainer={"secrets": {"W_KEY": {"from_agent_env": "NOT_THERE"}}}))
    assert end.error
    assert end.error.kind == FailureKind.CANNOT_START
    assert "agent 'test' has no environment variable NOT_THERE" in end.error.message


def test_a_forked_child_that_fails_ends_there_and_the_trial_continues(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("fork_a_child_that_fails", trainer={"scaling": {"num_workers": 1}})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert record.read_text() == "0 code 1\n"
    assert "ValueError: in the child" in service.log(trial, 0)


def test_a_forked_child_ends_by_sigterm_as_in_a_plain_script(service: FakeService, add: Add, record: Path) -> None:
    """Ray's handler, which raises, would sometimes have the end of a `multiprocessing.Pool` wait for it without end."""
    trial = add("end_a_forked_child", trainer={"scaling": {"num_workers": 1}})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert record.read_text() == f"0 code {-signal.SIGTERM}\n"


def test_a_task_with_a_function_of_the_package_needs_it_by_value(service: FakeService, add: Add, record: Path) -> None:
    package = service.add_package(USER_CODE.with_name("tasks.py").read_text())
    spec = {"package": package, "scaling": {"num_workers": 1}, "reuse_workers": False}
    by_reference, by_value = (add(trainer=spec, config={"by_value": one}) for one in (False, True))
    error = service.finished(by_reference).error
    assert error is not None
    assert error.message.endswith(TASK_ADVICE)
    assert service.finished(by_value).outcome == Outcome.COMPLETED
    assert record.read_text() == "6"


def test_an_exception_in_one_rank_fails_the_trial_with_its_traceback(service: FakeService, add: Add) -> None:
    _, error = failure_in_new_processes(service, lambda: add("fail_on_rank_1"))
    assert error.kind == FailureKind.USER_ERROR
    assert error.message.startswith("ValueError: a bad (rank 1 of 2, train.py:")
    assert [r.rank for r in error.ranks] == [1]
    assert 'raise ValueError("a bad\\nlearning rate")' in (error.traceback or "")
    assert "session.py" not in (error.traceback or "")


@pytest.mark.parametrize("kind", ["warm", "new"])
@pytest.mark.parametrize("alone", [0, 1])
def test_a_rank_that_reports_alone_does_not_wait_without_end(
    service: FakeService, add: Add, alone: int, kind: str
) -> None:
    trainer = {"reuse_workers": kind == "warm"}
    _, error = failure_in_new_processes(
        service, lambda: add("report_on_one_rank", trainer=trainer, config={"alone": alone})
    )
    assert error.kind == FailureKind.USER_ERROR
    assert error.message == (
        f"rank {1 - alone} has returned while rank {alone} waits for it in ray.train.report(): "
        "all ranks must report equally often"
    )


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("fail_with_a_file_name_that_is_no_text", "ValueError: cannot parse caf?.csv (rank "),
        ("fail_without_a_text", "UnprintableError: its text is not available: __str__ raised AttributeError (rank "),
    ],
)
def test_an_exception_that_cannot_be_printed_is_the_users_error(
    service: FakeService, add: Add, do: str, message: str
) -> None:
    _, error = failure_in_new_processes(service, lambda: add(do))
    assert error.kind == FailureKind.USER_ERROR
    assert error.message.startswith(message)
    assert f"in {do}" in (error.traceback or "")


def test_a_rank_that_exits_by_itself_is_the_users_error_and_its_last_line_is_kept(
    service: FakeService, add: Add
) -> None:
    trial, error = failure_in_new_processes(service, lambda: add("leave_without_a_word"))
    assert error.kind == FailureKind.USER_ERROR
    assert re.match(r"the worker process of rank 1 ended itself with exit code 3 \(train\.py:\d+\)", error.message)
    assert "last words" in service.log(trial, 1)


def test_a_process_that_torch_ends_for_an_error_on_its_gpu_is_the_users_error(
    service: FakeService, add: Add, errors_on_a_gpu: dict[str, str]
) -> None:
    """The thread that watches NCCL does that, before the function has noticed the error."""
    trial, error = failure_in_new_processes(service, lambda: add("be_ended_by_torch", trainer=errors_on_a_gpu))
    assert (error.kind, error.began) == (FailureKind.USER_ERROR, True)
    assert error.message.startswith(
        "CUDA error: device-side assert triggered: torch ended the worker process of rank 1,"
    )
    assert error.traceback is not None
    assert '"index out of bounds"` failed' in error.traceback
    assert "watchdog thread terminated" in service.log(trial, 1)


def test_a_process_that_cannot_be_reset_is_replaced_and_its_trial_keeps_its_end(
    service: FakeService, add: Add, record: Path, errors_on_a_gpu: dict[str, str]
) -> None:
    behaviours = ["say_pid", "spoil_the_reset", "say_pid", "spoil_the_reset_and_fail", "say_pid"]
    ends = [service.finished(add(behaviour, trainer=errors_on_a_gpu)) for behaviour in behaviours]
    assert [end.error and end.error.kind for end in ends] == [None, None, None, FailureKind.USER_ERROR, None]
    assert ends[3].error is not None
    assert re.match(r"ValueError: a bad end \(rank \d of 2, train.py:", ends[3].error.message)
    processes = record.read_text().split()
    assert len(processes) == len({*processes}) == 3 * 2


def test_sys_exit_is_the_users_error(service: FakeService, add: Add) -> None:
    _, error = failure_in_new_processes(service, lambda: add("exit_politely"))
    assert (error.kind, "sys.exit(0)" in error.message) == (FailureKind.USER_ERROR, True)


def test_a_cuda_allocation_that_fails_is_out_of_memory(service: FakeService, add: Add) -> None:
    error = service.finished(add("run_out_of_memory")).error
    assert error is not None
    assert error.kind == FailureKind.OUT_OF_MEMORY


def test_a_missing_function_is_reported_with_the_existing_ones(service: FakeService, add: Add) -> None:
    error = service.finished(add(trainer={"entrypoint": "train:train"})).error
    assert error is not None
    assert error.kind == FailureKind.CANNOT_START
    assert error.message.startswith("train.py has no function 'train'; it has: be_killed_by_the_kernel")


def test_a_syntax_error_names_its_line_and_a_users_package_may_be_called_trainer(service: FakeService) -> None:
    broken = service.add_package("def train_fn(config:\n    pass\n", "trainer.py")
    spec = {"entrypoint": "trainer:train_fn", "package": broken}
    error = service.finished(service.add_trial(spec)).error
    assert error is not None
    assert (error.kind, "SyntaxError" in error.message) == (FailureKind.CANNOT_START, True)
    assert "trainer.py:1" in error.message

    whole = service.add_package(
        "import ray.train\ndef train_fn(config):\n    ray.train.report({'a': 1})\n", "trainer.py"
    )
    trial = service.add_trial({**spec, "package": whole})
    assert service.finished(trial).outcome == Outcome.COMPLETED


def test_a_report_that_the_service_refuses_ends_the_trial_and_says_why(service: FakeService, add: Add) -> None:
    trial = add("report_steps", config={"steps": 50, "pause": 0.05})
    service.refused[trial] = "metrics.epochs: is the experiment's step_metric and must be in every report"
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert "step_metric" in error.message
    assert service.reports[trial] == []


def test_a_rank_that_dies_in_a_collective_loses_the_attempt_and_is_not_a_user_error(
    service: FakeService, add: Add
) -> None:
    error = service.finished(add("reduce_and_lose_a_rank")).error
    assert error is not None
    assert error.kind == FailureKind.LOST, error.message
    assert "rank 1" in error.message or "a worker process died" in error.message


@pytest.mark.parametrize(
    ("do", "how", "where"),
    [("crash", "SIGSEGV", "in read_nothing"), ("abort", "SIGABRT", "in abort")],
)
def test_a_process_that_the_users_code_crashes_is_the_users_error(
    service: FakeService, add: Add, crashes: dict[str, str], do: str, how: str, where: str
) -> None:
    _, error = failure_in_new_processes(service, lambda: add(do, trainer=crashes))
    assert (error.kind, error.began) == (FailureKind.USER_ERROR, True)
    assert re.match(rf"the worker process of rank 1 crashed with {how} \(train\.py:\d+\)", error.message)
    assert where in (error.traceback or "")
    assert "rank_session" not in (error.traceback or "")


def test_a_crash_whose_stack_the_function_has_sent_elsewhere_is_the_users_error(
    service: FakeService, add: Add, crashes: dict[str, str]
) -> None:
    first, second = add("send_crashes_elsewhere", trainer=crashes), add("crash", trainer=crashes)
    assert service.finished(first).outcome == Outcome.COMPLETED
    error = service.finished(second).error
    assert error is not None
    assert "in read_nothing" in (error.traceback or ""), "the next trial's stack is in its output again"
    _, error = failure_in_new_processes(service, lambda: add("crash_elsewhere", trainer=crashes))
    assert error.kind == FailureKind.USER_ERROR
    assert error.message.startswith("the worker process of rank 1 crashed with SIGSEGV; where is not known")


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("raise_oddly", "AsksItsData: careless (rank "),
        ("shut_ray_down", "a training function must not call ray.shutdown()"),
    ],
)
def test_what_would_break_the_worker_itself_is_the_users_error(
    service: FakeService, add: Add, crashes: dict[str, str], do: str, said: str
) -> None:
    error = service.finished(add(do, trainer=crashes)).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert said in error.message


def test_a_process_that_is_killed_by_the_signal_of_a_crash_is_lost(
    service: FakeService, add: Add, crashes: dict[str, str]
) -> None:
    _, error = failure_in_new_processes(service, lambda: add("be_killed", trainer=crashes))
    assert error.kind == FailureKind.LOST


@pytest.mark.parametrize(
    ("by", "is_reused", "kind"),
    [
        ("kill", True, FailureKind.LOST),
        ("exit", True, FailureKind.USER_ERROR),
        ("kill", False, FailureKind.LOST),
    ],
)
def test_the_death_of_a_process_whose_forked_children_live_on_is_noticed(
    service: FakeService, add: Add, crashes: dict[str, str], by: str, is_reused: bool, kind: FailureKind
) -> None:
    trainer = {**crashes, "reuse_workers": is_reused}
    _, error = failure_in_new_processes(
        service, lambda: add("die_beside_forked_processes", trainer=trainer, config={"by": by})
    )
    assert error.kind == kind, error.message


def test_before_a_hanging_function_is_killed_the_log_of_each_rank_says_where_it_is(
    service: FakeService, add: Add
) -> None:
    trial = add("ignore_everything", kill_after_seconds=8.0)
    begun = "in ignore_everything"
    service.wait_for(lambda: all(begun in service.log(trial, rank) for rank in (0, 1)), what="both stacks")
    for rank in (0, 1):
        said = service.log(trial, rank)
        why = "is killed when it has run for 8 s; its training function is here (most recent call last):"
        assert f"rank {rank} {why}\n  File " in said
        assert "in ignore_everything\n    time.sleep(0.05)\n" in said
        assert "thread_runner" not in said
    service.order(trial, Decision.KILL)
    assert service.finished(trial).outcome == Outcome.STOPPED
