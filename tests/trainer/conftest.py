"""One local Ray, one fake service and one agent for all tests that need them: starting Ray's processes is slow."""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports Ray: a cluster of its own needs no token, and must not depend on one left on the machine.
os.environ["RAY_AUTH_MODE"] = "disabled"
# Where the workers look for the kernel's count of its kills, once a test puts a file there.
os.environ["PACELINE_OOM_COUNTER"] = f"{tempfile.gettempdir()}/paceline-test-oom-{os.getpid()}"

from tests.trainer.fake_service import FakeService, go_on

OOM_COUNTER = Path(os.environ["PACELINE_OOM_COUNTER"])
USER_CODE = Path(__file__).parent / "user_code" / "train.py"
IDLE_SECONDS = 120.0

# Ray 2.60's own, on import and in its threads; none is caused by how it is called here.
RAYS_OWN = [
    "ignore::DeprecationWarning:ray",
    "ignore::FutureWarning:ray",
    "ignore:.*pydantic.*:DeprecationWarning",
    "ignore:The `dict` method is deprecated",
    "ignore:The `json` method is deprecated",
    "ignore::ResourceWarning",
]


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
    return found


def slot_of(trial: str) -> Any:
    """The slot of the session's agent that runs it."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.agent.cluster import find_slots  # noqa: PLC0415 - heavy

    slots = find_slots("slot.test.").values()
    return next(slot for slot in slots if ray.get(slot.status.remote())["trial"] == trial)


def pid_of(actor: Any) -> int:
    import ray  # noqa: PLC0415 - heavy

    return int(ray.get(actor.__ray_call__.remote(lambda _self: os.getpid())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("ray"):
            for line in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(line))


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A head with 8 logical CPUs and 4 logical GPUs, without a dashboard."""
    import ray  # noqa: PLC0415 - heavy
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 4, "include_dashboard": False})
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, ray_address: str) -> Iterator[FakeService]:
    """A service with an agent that works for it, in a thread of this process."""
    from trainer.agent.agent import run_agent  # noqa: PLC0415

    stop = threading.Event()
    with FakeService(str(tmp_path_factory.mktemp("checkpoints"))).serving() as service:
        settings = {"idle_seconds": IDLE_SECONDS, "stop": stop}
        agent = threading.Thread(target=run_agent, args=(service.url, "test", ray_address), kwargs=settings)
        agent.start()
        yield service
        stop.set()
        agent.join(30)


@pytest.fixture
def service(shared: FakeService) -> Iterator[FakeService]:
    yield shared
    shared.decide, shared.parallelism = go_on, 1
    shared.away = shared.keeps_no_logs = False
    shared.failing = None
    shared.orders.clear()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The file in which the training function records what it did."""
    return tmp_path / "record"


Add = Callable[..., str]


@pytest.fixture
def add(service: FakeService, record: Path) -> Add:
    """Queue a trial of `user_code/train.py` that behaves as `do` says, on two workers; returns its id."""
    package = service.add_package(USER_CODE.read_text())

    def add_trial(do: str = "report_steps", *, trainer: dict[str, Any] | None = None, **fields: Any) -> str:
        config = {"do": do, "record": str(record), **fields.pop("config", {})}
        scaling = {"num_workers": 2}
        spec = {"entrypoint": "train:train_fn", "package": package, "scaling": scaling, **(trainer or {})}
        return service.add_trial(spec, config, **fields)

    return add_trial
