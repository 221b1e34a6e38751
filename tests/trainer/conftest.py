"""One local Ray, one fake service and one agent for all tests that need them: starting Ray's processes is slow."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Before anything imports Ray: a cluster of its own needs no token, and must not depend on one left on the machine.
os.environ["RAY_AUTH_MODE"] = "disabled"
# For a bucket: all processes of the cluster get their environment from this one.
os.environ |= {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# Ray kills and restarts a worker process whose imports take longer; by default it has a minute.
os.environ.setdefault("RAY_worker_register_timeout_seconds", "240")
# As with `up`: the processes that Ray would start ahead stay idle.
os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112 - as Ray spells it
# Where the workers look for the kernel's count of its kills, once a test puts a file there.
os.environ["PACELINE_OOM_COUNTER"] = f"{tempfile.gettempdir()}/paceline-test-oom-{os.getpid()}"

from tests.timeouts import wait_until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService, go_on
from trainer.ray_train.processes import setup_worker
from trainer.wire import Failure, FailureKind

if TYPE_CHECKING:
    from tests.trainer.gcs_server import GcsServer
    from tests.trainer.s3_server import S3Server

OOM_COUNTER = Path(os.environ["PACELINE_OOM_COUNTER"])
USER_CODE = Path(__file__).parent / "user_code" / "train.py"
# A path, because its import takes seconds.
AGENT_PROCESS = str(Path(__file__).with_name("agent_process.py"))
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


@pytest.fixture(scope="module")
def bucket() -> Iterator["S3Server"]:
    from tests.trainer.s3_server import S3Server  # noqa: PLC0415 - heavy

    with S3Server().serving() as server:
        yield server


@pytest.fixture
def s3(bucket: "S3Server") -> Iterator["S3Server"]:
    yield bucket
    bucket.is_away = bucket.is_slow = False
    bucket.refuses_reading = bucket.denies_writing = bucket.page = None
    bucket.deletes_from = 0.0


@pytest.fixture(scope="module")
def google_bucket() -> Iterator["GcsServer"]:
    from tests.trainer.gcs_server import GcsServer  # noqa: PLC0415 - heavy

    with GcsServer().serving() as server:
        yield server


@pytest.fixture
def gcs(google_bucket: "GcsServer") -> Iterator["GcsServer"]:
    yield google_bucket
    google_bucket.make_whole()


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    return wait_until(condition, seconds, what)


def set_constant(patch: pytest.MonkeyPatch, method: Any, name: str, value: Any) -> None:
    """Change a constant of the module of a class, where this method of the class reads it.

    The trainer's classes travel to the cluster by value. A process that unpickles one again, as this one does when it
    looks at some actors, gets new methods for the class, with globals that are a copy of the module's.
    """
    assert name in method.__globals__
    patch.setitem(method.__globals__, name, value)


@contextlib.contextmanager
def answers_awaited_for(seconds: float) -> Iterator[None]:
    """How long the ranks on slots that start in this context wait for the service's decision on a report."""
    from trainer.slot.attempt.report_barrier import ReportBarrier  # noqa: PLC0415 - heavy

    def change(seconds: float) -> float:
        defaults = ReportBarrier.__init__.__kwdefaults__  # of a method that may be new, as above
        assert defaults is not None
        before, defaults["wait_seconds"] = defaults["wait_seconds"], seconds
        return float(before)

    before = change(seconds)
    try:
        yield
    finally:
        change(before)


def slot_of(trial: str) -> Any:
    """The slot of the session's agent that runs it."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.agent.cluster import find_slots  # noqa: PLC0415 - heavy

    def found() -> Any:
        for slot in find_slots("slot.test.").values():
            with contextlib.suppress(ray.exceptions.RayActorError):  # an idle one has just been closed
                if ray.get(slot.status.remote())["trial"] == trial:
                    return slot
        return None

    return until(found, f"a slot that runs {trial}")


def free_the_cluster() -> None:
    """End the idle slots of earlier tests, whose agent would keep them for two minutes: other workers need the room."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.agent.cluster import find_slots, free_resources, total_resources  # noqa: PLC0415 - heavy

    for slot in find_slots("slot.test.").values():
        ray.kill(slot)
    until(lambda: free_resources() == total_resources(), "the cluster is free")


@contextlib.contextmanager
def another_agent(url: str, name: str, ray_address: str) -> Iterator[None]:
    """An agent in a process of its own, which works for the service at this URL."""
    import ray  # noqa: PLC0415 - heavy

    if ray.is_initialized():  # by the session's agent
        free_the_cluster()
    process = subprocess.Popen([sys.executable, AGENT_PROCESS, url, name, ray_address], cwd="/")
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def failure_in_new_processes(service: FakeService, add: Callable[[], str]) -> tuple[str, Failure]:
    """A trial that fails before its first report, and its failure. After one in used processes it is added again."""
    trial = add()
    error = service.finished(trial).error
    assert error is not None
    if error.kind == FailureKind.PREEMPTED and error.message.endswith("; the trial is repeated"):
        return failure_in_new_processes(service, add)
    return trial, error


def pid_of(actor: Any) -> int:
    import ray  # noqa: PLC0415 - heavy

    return int(ray.get(actor.__ray_call__.remote(lambda _self: os.getpid())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("ray"):
            for line in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(line))


# For the package, not the session: an idle cluster takes a seventh of a core from the tests that follow.
@pytest.fixture(scope="package")
def ray_address() -> Iterator[str]:
    """A head with 8 logical CPUs and 4 logical GPUs of one type, without a dashboard."""
    import ray  # noqa: PLC0415 - heavy
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from trainer.ray_train.processes.node_start import leave_out_dashboard  # noqa: PLC0415

    resources = {"num_cpus": 8, "num_gpus": 4, "resources": {"accelerator_type:A100": 1}}
    # As nodes that `up` starts.
    leave_out_dashboard()
    parts = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    starter = {"setup_worker_path": setup_worker.__file__}
    cluster = Cluster(initialize_head=True, head_node_args=resources | parts | starter)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory, ray_address: str) -> Iterator[FakeService]:
    """A service with an agent that works for it, in a thread of this process."""
    from trainer.agent import agent as trainer_agent  # noqa: PLC0415
    from trainer.agent import cluster  # noqa: PLC0415

    stop = threading.Event()
    with (
        FakeService(str(tmp_path_factory.mktemp("checkpoints"))).serving() as service,
        pytest.MonkeyPatch.context() as patch,
        answers_awaited_for(PATIENCE_SECONDS),  # or else ranks train on, because on a busy machine a decision is late
    ):
        patch.setattr(cluster, "CONNECT_SECONDS", PATIENCE_SECONDS)
        # On a busy machine, an assignment must not get a new slot because the idle one's status is late.
        patch.setattr(trainer_agent, "SETTLE_SECONDS", 15.0)
        settings = {"idle_seconds": IDLE_SECONDS, "prestarted": 1, "stop": stop}
        arguments = (service.url, "test", ray_address)
        agent = threading.Thread(target=trainer_agent.run_agent, args=arguments, kwargs=settings)
        agent.start()
        yield service
        stop.set()
        agent.join(PATIENCE_SECONDS)


@pytest.fixture
def service(shared: FakeService) -> Iterator[FakeService]:
    yield shared
    shared.decide, shared.parallelism = go_on, 1
    shared.away = shared.keeps_no_logs = False
    shared.failing = None
    shared.takes_logs.set()
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
