"""docker-compose.production.yml under faults: two services behind a proxy, two Ray workers, S3, PostgreSQL for all."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.stack.compose import Compose, Experiment, composed, docker, get, wait_until
from tests.stack.production import LEASE_SECONDS, MANY, production
from tests.stack.watcher import RETRYABLE, Watcher

# Killed together, each once; the next when another trial has ended. `test_compose.py` kills agent and Ray head.
VICTIMS = (("service", "mlflow"), ("ray-worker", "proxy"), ("service-2", "postgres"))
# Each is cut off from the network for longer than a lease. S3 is paused instead, which closes no connection.
DATABASE = "postgres"
CUT_OFF = ("service-2", "agent", "ray-head", "ray-worker", "mlflow", DATABASE)
CUT_SECONDS = 2 * LEASE_SECONDS
PAUSE_SECONDS = 20

LOCK_SECONDS = 60
"""How long PostgreSQL may keep a lock whose holder has no network. By default it keeps it for two hours."""
HOLDERS = """
PGPASSWORD=$POSTGRES_PASSWORD psql -h 127.0.0.1 -U paceline -tAc \
  "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711" paceline
"""
HOLD_LOCK = """
import os, time
from sqlalchemy import text
from service.store.sql.database import Database
with Database(os.environ["PACELINE_DATABASE_URL"]).engine.connect() as connection:
    connection.execute(text("select pg_advisory_lock(4711)"))
    connection.commit()
    time.sleep(120)
"""

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    with composed(production()) as compose:
        yield compose


def test_two_services_behind_a_proxy_survive_kills_cuts_and_a_storage_that_is_away(compose: Compose) -> None:
    compose.wait_until_healthy()
    experiment = Experiment(compose.url)
    experiment.limit(MANY)
    experiment.wait_for(1, compose.logs)
    assert_across_both_nodes(compose, experiment)
    assert_streams_pass(experiment)
    assert_locks_end_with_the_network_of_their_holder(compose)

    with Watcher(experiment.url) as watcher:
        for victims in VICTIMS:
            started, done = time.monotonic(), experiment.finished()
            docker("kill", *(compose.containers(name)[0] for name in victims))
            if victims == VICTIMS[0]:
                experiment.wait_for(done + 2, compose.logs)  # the other service does all of the work
            compose("up", "--detach", "--no-build", "--no-recreate")
            experiment.wait_for(experiment.finished() + 1, compose.logs)
            if "proxy" not in victims:
                assert set(watcher.failures_since(started)) <= RETRYABLE, watcher.failures
            print(f"{victims}: {time.monotonic() - started:.0f} s, {watcher.failures_since(started)}")  # noqa: T201
        for name in CUT_OFF:
            started = time.monotonic()
            with compose.cut_off(name):
                time.sleep(CUT_SECONDS)
            experiment.wait_for(experiment.finished() + 1, compose.logs)
            if name != DATABASE:  # a call may hang for as long as the cut, which is longer than the watcher waits
                assert set(watcher.failures_since(started)) <= RETRYABLE, (name, watcher.failures)
            print(f"{name} cut off: {time.monotonic() - started:.0f} s, {watcher.failures_since(started)}")  # noqa: T201
        s3, started = compose.containers("s3")[0], time.monotonic()
        docker("pause", s3)
        time.sleep(PAUSE_SECONDS)
        docker("unpause", s3)
        experiment.wait_for(experiment.finished() + 1, compose.logs)
        assert set(watcher.failures_since(started)) <= RETRYABLE, ("s3", watcher.failures)
        experiment.limit_to_present()
        ended = experiment.ended(compose.logs)
    print(f"{watcher.calls} calls, failures: {watcher.failures}")  # noqa: T201 - for `pytest -s`
    assert ended["best"]["checkpoint"]["uri"].startswith("s3://"), ended["best"]
    experiment.assert_mirrored(compose.mlflow_port, compose.logs)

    compose("down", "--volumes")
    assert compose.left_behind() == ""


def assert_across_both_nodes(compose: Compose, experiment: Experiment) -> None:
    assert len(compose.containers("ray-worker")) == 2
    [agent] = get(f"{compose.url}/v1/agents")["items"]
    assert [node["total"].get("CPU") for node in agent["nodes"] if node["total"].get("CPU")] == [1, 1]
    assert experiment.created["spec"]["trainer"]["scaling"]["num_workers"] == 2


def assert_locks_end_with_the_network_of_their_holder(compose: Compose) -> None:
    """One service process at a time mirrors: the others must not wait for one that was cut off."""
    [database], [holder] = compose.containers("postgres"), compose.containers("service-2")

    def holders() -> int:
        return int(docker("exec", database, "sh", "-c", HOLDERS))

    docker("exec", "--detach", holder, "python", "-c", HOLD_LOCK)
    wait_until(lambda: holders() == 1, LOCK_SECONDS, compose.logs)
    with compose.cut_off("service-2"):
        wait_until(lambda: holders() == 0, LOCK_SECONDS, lambda: "the lock is held")


def assert_streams_pass(experiment: Experiment) -> None:
    """The proxy passes events on when they come, not when the stream ends. A trial has ended before."""
    command = ["curl", "-sN", "--max-time", "3", f"{experiment.url}/events"]
    streamed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert streamed.returncode == 28, "the stream has ended"
    lines = streamed.stdout.rpartition("\n\n")[0].splitlines()
    ids = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert ids == list(range(1, len(kinds) + 1)), streamed.stdout
    assert kinds[0] == "experiment.created", streamed.stdout
    assert {"trial.completed", "trial.pruned"} & {*kinds}, streamed.stdout
