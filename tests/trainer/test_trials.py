"""Trials on a real Ray: what the service gets, what the training functions do, and what is left afterwards."""

import os
import re
import time
import uuid
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.trainer.conftest import USER_CODE, Add, free_the_cluster, slot_of, until
from tests.trainer.fake_nvidia_smi import program
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.wire import Answer, Decision, FailureKind, Outcome, Report

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CUT = Answer(decision=Decision.STOP, reason="cannot hold the pace")


def lines(record: Path, rank: int | None = None) -> list[str]:
    found = record.read_text().splitlines() if record.exists() else []
    return [line.split(" ", 1)[1] for line in found if rank is None or line.startswith(f"{rank} ")]


def pids(record: Path) -> list[str]:
    return sorted(line.split()[1] for line in lines(record) if line.startswith("pid"))


def stop_at(trial: str, sequence: int) -> Callable[[str, Report], Answer]:
    return lambda of, report: CUT if (of, report.sequence) == (trial, sequence) else Answer()


def test_both_ranks_train_and_every_report_arrives_once_in_order(service: FakeService, add: Add, record: Path) -> None:
    trial = add(config={"steps": 5})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert [r.sequence for r in service.reports[trial]] == [0, 1, 2, 3, 4]
    assert [r.metrics for r in service.reports[trial]] == [{"epoch": n, "loss": 1 / n} for n in range(1, 6)]
    assert lines(record, 0) == lines(record, 1) == [*(f"step {n}" for n in range(1, 6)), "end"]


def test_nothing_of_paceline_is_imported_where_the_users_code_runs(
    service: FakeService, add: Add, record: Path
) -> None:
    service.finished(add("say_who"))
    assert [line for line in lines(record) if "modules" in line and not line.endswith("modules ")] == []


def test_a_stop_decided_on_a_report_ends_all_ranks_at_that_report(service: FakeService, add: Add, record: Path) -> None:
    trial = add(config={"steps": 50})
    service.decide = stop_at(trial, 2)
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert lines(record, 0) == lines(record, 1) == ["step 1", "step 2", "step 3"]
    assert len(service.reports[trial]) == 3


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_the_end_of_an_attempt_tells_its_seconds_by_phase(service: FakeService, add: Add, reuse_workers: bool) -> None:
    spec = {"reuse_workers": reuse_workers}
    saves = service.finished(add("save", config={"steps": 2}, trainer=spec))
    assert saves.phases is not None
    assert min(saves.phases.training, saves.phases.checkpointing, saves.phases.reporting) > 0
    assert saves.phases.data == 0
    missing = service.finished(add(trainer=spec | {"entrypoint": "train:nothing"}, experiment="x-missing"))
    assert missing.phases is not None
    assert missing.phases.total == 0


def test_the_next_trial_runs_in_the_same_processes_and_finds_them_clean(
    service: FakeService, add: Add, record: Path
) -> None:
    first, second, third = add("look_for_leaks"), add("leak"), add("look_for_leaks")
    for trial in (first, second, third):
        assert service.finished(trial).outcome == Outcome.COMPLETED
    assert len(set(pids(record))) == 2
    assert [line for line in lines(record) if "leaks []" not in line] == []


@pytest.mark.parametrize(
    ("when", "count", "message"),
    [
        ("at its import", 4, "the package cannot be imported again"),
        ("late", 3, "the training function failed before its first report"),
    ],
)
def test_a_package_that_registers_twice_what_a_library_takes_once_gets_new_processes(
    service: FakeService, add: Add, record: Path, when: str, count: int, message: str
) -> None:
    package = service.add_package(USER_CODE.with_name("registers.py").read_text())
    environment = {"env_vars": {"REGISTER": when}}
    spec = {"package": package, "scaling": {"num_workers": 1}, "runtime_env": environment}
    ends = [service.finished(trial) for trial in [add(trainer=spec) for _ in range(count)]]
    completed = [Outcome.COMPLETED] * count
    assert [end.outcome for end in ends] == [Outcome.COMPLETED, Outcome.FAILED, *completed[2:]]
    repeated = ends[1].error
    assert repeated is not None
    assert repeated.kind == FailureKind.PREEMPTED  # repeated, without a charge
    assert repeated.message.startswith(f"{message} in a process that has served another trial: ")
    assert "Duplicated timeseries" in repeated.message
    assert len(set(pids(record))) == len(pids(record)) == count - 1


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_the_process_group_and_the_accelerator_are_those_of_the_spec(
    service: FakeService, add: Add, record: Path, reuse_workers: bool
) -> None:
    scaling = {"num_workers": 2, "use_gpu": True, "accelerator_type": "A100"}
    spec = {"scaling": scaling, "reuse_workers": reuse_workers}
    for trainer in (spec | {"torch_config": {"backend": "gloo", "timeout_s": 77}}, spec):
        trial = add("say_process_group", trainer=trainer)
        service.finished(trial)
        assert "GPUs were requested, but torch finds none on the workers" in service.log(trial, 0)
        assert "GPUs were requested" not in service.log(trial, 1)
    told = ["group gloo 77.0", "accelerator 0.001", "group gloo 1800.0", "accelerator 0.001"]
    assert lines(record, 0) == lines(record, 1) == told


def test_a_thread_left_running_replaces_the_processes_and_does_not_fail_the_trial(
    service: FakeService, add: Add, record: Path
) -> None:
    first, second = add("leave_a_thread"), add("say_who")
    assert service.finished(first).outcome == service.finished(second).outcome == Outcome.COMPLETED
    assert len(set(pids(record))) == 4


@pytest.mark.parametrize(("before", "processes"), [("close_its_output", 4), ("print_elsewhere", 2)])
def test_a_trial_that_closes_or_replaces_its_output_completes_and_the_next_one_has_its_log(
    service: FakeService, add: Add, record: Path, before: str, processes: int
) -> None:
    first, second = add(before), add("print_a_line")
    assert service.finished(first).outcome == service.finished(second).outcome == Outcome.COMPLETED
    assert ("the last line" in service.log(first, 1)) is (before == "close_its_output")
    assert [service.log(second, rank) for rank in (0, 1)] == ["in the own log\n"] * 2
    assert len(set(pids(record))) == processes


def test_every_line_of_every_rank_reaches_the_log_once(service: FakeService, add: Add) -> None:
    trial = add("talk")
    ended = service.finished(trial)
    assert ended.outcome == Outcome.COMPLETED, ended.error and ended.error.message
    for rank in (0, 1):
        said = [f"{how} by {rank}" for how in ("printed", "complained", "written", "echoed")]
        log = service.log(trial, rank)
        assert {line: log.count(line) for line in said} == dict.fromkeys(said, 1)
        assert f"logged by {rank}: é" in log
        assert log.endswith("no newline at the end") or "no newline at the end" in log


def test_nothing_of_a_log_is_lost_by_a_slow_service_and_the_death_of_a_worker(service: FakeService, add: Add) -> None:
    service.takes_logs.clear()
    trial = add("talk_much_and_lose_a_rank", config={"lines": 60_000})
    service.wait_for(lambda: service.log_calls > 0, what="the first output")
    service.takes_logs.set()
    assert service.finished(trial).outcome == Outcome.FAILED
    for rank in (0, 1):
        lines = [line for line in service.log(trial, rank).splitlines() if re.fullmatch(r" +\d+", line)]
        assert [int(line) for line in lines] == list(range(60_000))


def test_a_trial_ends_although_its_log_cannot_be_stored(
    service: FakeService, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "keeps_no_logs", True)
    trial = add("report_steps")
    assert service.finished(trial).outcome == Outcome.COMPLETED


def test_metrics_arrive_as_json_values(service: FakeService, add: Add) -> None:
    trial = add("report_odd_values")
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert service.reports[trial][0].metrics == {"a": 0.5, "b": "NaN", "c": 3, "d": "-Infinity"}
    assert "metric 'e' is of type type" in service.log(trial)


def test_secrets_reach_the_workers_and_never_the_service(
    service: FakeService, add: Add, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = f"s3cr3t/{uuid.uuid4().hex}"
    monkeypatch.setenv("AGENT_KEY", value)
    one = {"scaling": {"num_workers": 1}}
    keyed = {**one, "secrets": {"W_KEY": {"from_agent_env": "AGENT_KEY"}}}
    used, failed, died = (add("use_secrets", trainer=keyed, config={"end": end}) for end in (None, "fail", "die"))
    without = add("look_for_secrets", trainer=one, experiment="x-2")
    ends = [service.finished(trial) for trial in (used, failed, died, without)]
    assert lines(record) == [f"secret {value}"] * 3 + ["found None"]
    assert [end.outcome for end in ends] == [Outcome.COMPLETED, Outcome.FAILED, Outcome.FAILED, Outcome.COMPLETED]
    assert ends[1].error
    assert "ValueError: the server refused *** (rank 0" in ends[1].error.message
    assert "the server refused ***" in (ends[1].error.traceback or "")
    assert service.reports[used][0].metrics == {"epoch": 1, "note": "with ***"}
    log = service.log(used)
    assert [text in log for text in ("it is ***\n", "a child has ***\n")] == [True, True]
    assert log.count("***") == 3
    assert "last words: ***" in service.log(died)
    assert value not in str([service.reports, service.logs, service.finishes, service.claims])


def test_torchs_rendezvous_listens_at_the_nodes_address_alone(service: FakeService, add: Add, record: Path) -> None:
    trials = [add("look_at_the_rendezvous") for _ in range(2)]
    assert [service.finished(trial).outcome for trial in trials] == [Outcome.COMPLETED] * 2
    assert [line for line in lines(record) if line.startswith("total")] == ["total 2"] * 4
    listening = [line for line in lines(record) if line.startswith("listens")]
    assert len(listening) == 4
    assert not {line.replace("0", "") for line in listening} & {"listens", "listens "}


def test_a_function_without_arguments_runs_too(service: FakeService, add: Add) -> None:
    trial = add(trainer={"entrypoint": "train:takes_nothing"})
    assert service.finished(trial).outcome == Outcome.COMPLETED


def test_a_module_with_the_name_of_a_loaded_one_wins_and_begins_each_trial_anew(service: FakeService, add: Add) -> None:
    content = BytesIO()
    with ZipFile(content, "w") as package:
        package.writestr("statistics.py", "SEEN = []")
        package.writestr("queue.py", "import statistics\ndef count():\n    statistics.SEEN.append(1)\n")
        code = "import os, queue, statistics, ray.train\ndef train_fn(config):\n    queue.count()\n"
        report = "    ray.train.report({'seen': len(statistics.SEEN), 'pid': os.getpid()})\n"
        package.writestr("train.py", code + report)
    spec = {"package": service.add_package(content.getvalue(), "train.zip"), "scaling": {"num_workers": 1}}
    trials = [add(trainer=spec) for _ in range(3)]
    assert [service.finished(trial).outcome for trial in trials] == [Outcome.COMPLETED] * 3
    told = [service.reports[trial][0].metrics for trial in trials]
    assert [one["seen"] for one in told] == [1, 1, 1]
    assert len({one["pid"] for one in told}) == 1


def test_files_beside_the_code_are_in_a_working_directory_that_ends_with_the_attempt(
    service: FakeService, add: Add, record: Path, tmp_path: Path
) -> None:
    content = BytesIO()
    with ZipFile(content, "w") as package:
        package.writestr("train.py", USER_CODE.read_text())
        package.writestr("data/words.txt", "as in a script")
    spec = {"package": service.add_package(content.getvalue(), "train.zip")}
    functions = ["read_beside", "read_beside", "read_beside_and_be_killed"]
    kept = [tmp_path / str(number) for number in range(3)]
    trials = [add(function, trainer=spec, event_files=str(one)) for function, one in zip(functions, kept, strict=True)]
    ends = [service.finished(trial) for trial in trials]
    assert [end.outcome for end in ends] == [Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED]
    found = [line.split(" ", 1) for line in lines(record)]
    assert [words for _, words in found] == ["as in a script"] * 6
    folders = {Path(folder) for folder, _ in found}
    assert len(folders) == 3
    until(lambda: not any(folder.exists() for folder in folders), "the working directories are removed")
    for one in kept:
        for rank in (0, 1):
            assert (one / "runs" / f"events.out.tfevents.{rank}").read_text() == f"of rank {rank}"


def test_a_stop_that_is_ignored_ends_in_a_kill_after_the_grace_period(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("ignore_everything", stop_grace_seconds=0.5)
    until(lambda: "started" in lines(record), "the start")
    service.order(trial, Decision.STOP, "the user")
    assert service.finished(trial).outcome == Outcome.STOPPED


def test_a_kill_ends_the_workers_immediately_and_the_slot_continues(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("ignore_everything", stop_grace_seconds=10 * PATIENCE_SECONDS)
    until(lambda: "started" in lines(record), "the start")
    service.order(trial, Decision.KILL)
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert service.finished(add()).outcome == Outcome.COMPLETED


def test_after_a_users_stop_the_next_report_counts_and_ends_the_function(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add(config={"steps": 1000, "pause": 0.1})
    service.wait_for(lambda: service.reports[trial], what="a report")
    service.order(trial, Decision.STOP, "the user")
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert lines(record, 0) == lines(record, 1)
    assert len(service.reports[trial]) == len(lines(record, 0))


def test_a_trial_over_its_time_limit_is_stopped(service: FakeService, add: Add) -> None:
    trial = add(config={"steps": 1000, "pause": 0.1}, max_seconds=1.0)
    assert service.finished(trial).outcome == Outcome.STOPPED


def test_a_lost_lease_ends_the_workers_and_nothing_more_is_reported(
    service: FakeService, add: Add, record: Path
) -> None:
    """Its placement group ends, too: with that, Ray ends workers whose kill a cut of the network has prevented."""
    import ray  # noqa: PLC0415 - heavy
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    trial = add(config={"steps": 1000, "pause": 0.05})
    service.wait_for(lambda: service.reports[trial], what="a report")
    slot = slot_of(trial)
    group = ray.get(slot.status.remote())["placement_group"]
    service.lose(trial)
    until(lambda: placement_group_table()[group]["state"] == "REMOVED", "the end of its placement group")
    assert not ray.get(slot.status.remote())["closing"]
    assert service.finished(add()).outcome == Outcome.COMPLETED
    assert trial not in service.finishes
    assert "end" in lines(record)  # of the second trial


def test_training_continues_while_the_service_is_away_and_nothing_is_lost(service: FakeService, add: Add) -> None:
    trial = add(config={"steps": 4, "pause": 0.1})
    service.wait_for(lambda: service.reports[trial], what="a report")
    service.away = True
    time.sleep(3)  # how long it is away
    service.away = False
    assert service.finished(trial).outcome == Outcome.COMPLETED
    assert [r.sequence for r in service.reports[trial]] == [0, 1, 2, 3]


def test_each_worker_has_the_specs_environment_and_its_own_gpu_and_these_are_sampled_until_the_attempt_ends(
    service: FakeService, add: Add, record: Path, tmp_path: Path
) -> None:
    shown = "".join(f"{n}, GPU-{n}, {10 * n}, 1000, 2000, [N/A], [N/A]\\n" for n in range(4))
    calls = program(tmp_path, f"printf '{shown}'")
    scaling = {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1, "GPU": 1}}
    spec = {"scaling": scaling, "env": {"FROM_SPEC": "yes", "PATH": f"{tmp_path}:{os.environ['PATH']}"}}
    sampled = add("be_sampled", trainer=spec, config={"calls": str(calls)}, system_metrics_seconds=0.05)
    after = add("say_who", trainer=spec)
    for trial in (sampled, after):
        finish = service.finished(trial)
        assert finish.outcome == Outcome.COMPLETED, finish.error
    seen = [line.split() for line in lines(record) if line.startswith("env")]
    own = sorted(line.split()[1] for line in lines(record) if line.startswith("gpu"))
    assert {who for _, who, _ in seen} == {"yes"}
    assert len(set(own)) == 2
    assert sorted(devices for *_, devices in seen) == own
    load = service.samples[sampled][-1].metrics
    utilization = {name: value for name, value in load.items() if name.endswith("_utilization_percentage")}
    assert 0 <= utilization.pop("cpu_utilization_percentage") <= 100
    assert utilization == {f"gpu_{n}_utilization_percentage": 10.0 * int(own[n]) for n in range(2)}
    assert [line for line in lines(record) if line.startswith("samplers")] == ["samplers"] * 2
    assert service.samples[after] == []


def test_lightning_and_transformers_see_all_gpus_of_their_node(service: FakeService, add: Add, record: Path) -> None:
    scaling = {"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1, "GPU": 1}}
    finish = service.finished(add("say_who", trainer={"kind": "transformers", "scaling": scaling}))
    assert finish.outcome == Outcome.COMPLETED, finish.error
    own = [line.split()[1] for line in lines(record) if line.startswith("gpu")]
    assert {line.split()[2] for line in lines(record) if line.startswith("env")} == {",".join(sorted(own))}


def test_a_worker_serves_the_configured_number_of_trials_and_is_then_replaced(
    service: FakeService, add: Add, record: Path
) -> None:
    spec = {"scaling": {"num_workers": 1}, "reuse_workers": 3}
    for trial in [add("say_who", trainer=spec) for _ in range(4)]:
        finish = service.finished(trial)
        assert finish.outcome == Outcome.COMPLETED, finish.error
    first, second, third, fourth = (line.split()[1] for line in lines(record) if line.startswith("pid"))
    assert first == second == third != fourth


def test_elastic_groups_of_one_size_share_their_processes_unless_told_otherwise(
    service: FakeService, add: Add, record: Path
) -> None:
    service.wait_for(lambda: service.claims)
    free_the_cluster()
    for reuse_workers, process_count in ((True, 2), (False, 2 + 4)):
        spec = {"scaling": {"num_workers": [1, 2]}, "reuse_workers": reuse_workers}
        trials = [add("say_who", trainer=spec, experiment=f"x-elastic-{reuse_workers}") for _ in range(2)]
        assert [service.finished(trial).outcome for trial in trials] == [Outcome.COMPLETED] * 2
        assert [set(service.world_sizes[trial]) for trial in trials] == [{2}, {2}]
        assert len(set(pids(record))) == process_count


def test_an_idle_slot_closes_to_make_room_for_the_second_of_two_concurrent_trials(
    service: FakeService, add: Add
) -> None:
    def add_a_worker_with(cpus: int, kind: str) -> str:
        scaling = {"num_workers": 1, "resources_per_worker": {"CPU": cpus}}
        return add(trainer={"scaling": scaling, "env": {"KIND": kind}})

    service.parallelism = 2
    service.finished(add_a_worker_with(5, "idle"))
    for trial in [add_a_worker_with(3, "first"), add_a_worker_with(3, "second")]:
        finish = service.finished(trial)
        assert finish.outcome == Outcome.COMPLETED, finish.error


def test_fresh_processes_for_each_trial_by_the_public_fit(service: FakeService, add: Add, record: Path) -> None:
    fresh = {"reuse_workers": False}
    whole, stopped = add("say_who", trainer=fresh), add("say_who_often", trainer=fresh)
    service.decide = stop_at(stopped, 1)
    assert service.finished(whole).outcome == Outcome.COMPLETED
    assert service.finished(stopped).outcome == Outcome.STOPPED
    assert len(set(pids(record))) == 4
    assert len([line for line in lines(record, 1) if line.startswith("step")]) == 2
