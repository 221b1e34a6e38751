"""Slots on their own, without an agent."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import USER_CODE
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService

SCALING = {"num_workers": 1}


def started(slot: type[Any], trial: str, service: FakeService) -> Any:
    import ray  # noqa: PLC0415 - heavy

    name = f"slot-{secrets.token_hex(4)}"  # its package's folder outlives a slot that is killed
    actor = ray.remote(slot).options(num_cpus=0, max_concurrency=10).remote(service.url, name)
    assert ray.get(actor.run.remote(service.assign(trial), "key", SCALING))
    return actor


def ended(actor: Any) -> bool:
    """Wait until the actor has ended."""
    import ray  # noqa: PLC0415 - heavy

    try:
        while True:
            ray.get(actor.status.remote(), timeout=PATIENCE_SECONDS)
    except ray.exceptions.RayActorError:
        return True
    except ray.exceptions.GetTimeoutError:
        return False


@pytest.fixture
def alone(tmp_path: Path, shared: FakeService) -> Iterator[FakeService]:
    """A service without an agent; that of `shared` has joined Ray in this process."""
    shared.wait_for(lambda: shared.claims)
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@pytest.fixture
def reserved(alone: FakeService) -> Callable[[], set[str]]:
    """The placement groups that the test has left so far."""
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    earlier = set(placement_group_table())
    return lambda: {id_ for id_, one in placement_group_table().items() if one["state"] != "REMOVED"} - earlier


@pytest.fixture
def start(alone: FakeService, record: Path) -> Callable[[str], tuple[str, Any]]:
    """Starts a slot of its own that runs a behaviour of `user_code/train.py`; returns the trial and the slot."""
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    def start_slot(do: str) -> tuple[str, Any]:
        package = alone.add_package(USER_CODE.read_text())
        config = {"do": do, "record": str(record), "steps": 10_000, "pause": 0.1}
        trial = alone.add_trial({"entrypoint": "train:train_fn", "package": package, "scaling": SCALING}, config)
        return trial, started(Slot, trial, alone)

    return start_slot
