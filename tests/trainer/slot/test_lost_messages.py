"""Messages of workers to their slot during which the connection breaks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.slot.conftest import SCALING, started
from trainer.wire import Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

WAITS = """
import pathlib
import time

def train_fn(config):
    print("it waits", flush=True)
    while not pathlib.Path(config["end"]).exists():
        time.sleep(0.05)
"""


def losing(count: int, of_calls: int = 100, of_answers: int = 0) -> dict[str, str]:
    """Variables with which Ray loses the first calls of actors that a process makes, or answers, for its own tests.

    `of_calls` and `of_answers` are percentages.
    """
    chances = {"req_failure_prob": of_calls, "in_flight_failure_prob": 0, "resp_failure_prob": of_answers}
    loses = {"num_failures": count, **chances}
    return {
        "RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": loses}),
        "RAY_testing_rpc_failure_avoid_intra_node_failures": "0",
    }


def test_a_slot_gets_the_messages_of_its_workers_start_and_their_output_though_they_are_lost_at_first(
    alone: FakeService, tmp_path: Path
) -> None:
    import ray  # noqa: PLC0415 - heavy

    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    end = tmp_path / "end"
    trainer = {
        "entrypoint": "train:train_fn",
        "package": alone.add_package(WAITS),
        "scaling": SCALING,
        "runtime_env": {"env_vars": losing(6)},
    }
    trial = alone.add_trial(trainer, {"end": str(end)}, lease_seconds=3)
    slot = started(Slot, trial, alone)
    until(lambda: ray.get(slot.status.remote())["began"], "the slot knows that the worker has started")
    alone.wait_for(lambda: any(alone.phases[trial]), what="a heartbeat after the function has begun")
    alone.wait_for(lambda: alone.log(trial) == "it waits\n", what="the output, while the function runs")
    end.touch()
    assert alone.finished(trial).outcome == Outcome.COMPLETED
    ray.kill(slot)


@pytest.mark.parametrize("lost", [{"of_calls": 100}, {"of_calls": 0, "of_answers": 100}], ids=["call", "answer"])
@pytest.mark.usefixtures("alone")
def test_a_report_whose_call_or_answer_is_lost_counts_once(lost: dict[str, int]) -> None:
    """Ray's own part of a report, which is another one of such calls, is left out: it has a test below."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.phase_times import PhaseTimes  # noqa: PLC0415 - heavy
    from trainer.slot.attempt.report_barrier import ReportBarrier  # noqa: PLC0415 - heavy
    from trainer.slot.worker_message_handlers import WorkerMessageHandlers  # noqa: PLC0415 - heavy
    from trainer.worker.logs.masker import Masker  # noqa: PLC0415 - heavy
    from trainer.worker.reports import Reporter  # noqa: PLC0415 - heavy

    class Receiver(WorkerMessageHandlers):
        """The part of a slot that takes reports."""

        def __init__(self) -> None:
            self.delivered: list[int] = []
            barrier = ReportBarrier(lambda sequence, *_: self.delivered.append(sequence), lambda: None, wait_seconds=0)
            attempt: Any = SimpleNamespace(run_name="run", report=barrier.report)
            super().__init__(SimpleNamespace(attempt=attempt))  # type: ignore[arg-type]

        async def sequences(self) -> list[int]:
            return self.delivered

    def make_reports(slot: Any, count: int) -> None:
        reporter = Reporter(slot, "run", 0, 1, None, Masker(()), PhaseTimes(lambda: 0.0))
        for step in range(count):
            reporter.report({"loss": step}, None, {}, None)

    receiver = ray.remote(Receiver).options(num_cpus=0, max_concurrency=10).remote()
    losing_some = ray.remote(num_cpus=0, max_retries=0, runtime_env={"env_vars": losing(2, **lost)})(make_reports)
    ray.get(losing_some.remote(receiver, 3))
    assert ray.get(receiver.sequences.remote()) == list(range(3))
    ray.kill(receiver)


@pytest.mark.parametrize("lost", [{"of_calls": 100}, {"of_calls": 0, "of_answers": 100}], ids=["call", "answer"])
@pytest.mark.usefixtures("alone")
def test_ranks_meet_once_for_each_report_though_calls_or_answers_of_one_are_lost(lost: dict[str, int]) -> None:
    """One rank alone: if both joined twice for the same report, they would still meet."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.ray_train.synchronization import synchronization_actor_class  # noqa: PLC0415 - heavy

    def meet(actor: Any, rank: int, count: int) -> list[str]:
        def joined(sequence: int) -> Any:
            data = f"report {sequence}" if rank == 0 else None
            return actor.broadcast_from_rank_zero.remote(rank, 2, data, "ray.train.report", sequence, True)

        return [ray.get(joined(sequence)) for sequence in range(1, count + 1)]

    actor = synchronization_actor_class().remote()
    plain = ray.remote(num_cpus=0, max_retries=0)(meet)
    losing_some = plain.options(runtime_env={"env_vars": losing(2, **lost)})
    try:
        met = [plain.remote(actor, 0, 4), losing_some.remote(actor, 1, 4)]
        expected = [f"report {sequence}" for sequence in range(1, 5)]
        assert ray.get(met, timeout=PATIENCE_SECONDS) == [expected] * 2
        assert ray.get(actor.get_counter.remote()) == 0, "no rank has joined once more than it has left"
    finally:
        ray.kill(actor)
