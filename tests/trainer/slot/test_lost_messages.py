"""Messages of workers to their slot during which the connection breaks."""

import json
from pathlib import Path

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService
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


def losing(count: int) -> dict[str, str]:
    """Variables with which Ray loses the first calls of actors that a process makes, for its own tests."""
    loses = {"num_failures": count, "req_failure_prob": 100, "in_flight_failure_prob": 0, "resp_failure_prob": 0}
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
