"""docker-compose.yml on a container engine: it starts healthy, runs digits, survives kills, leaves nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest

from tests.stack.compose import AGENT_SECONDS, Compose, Experiment, agent_seen, composed, docker, log_since, wait_until

SERVERS = ("postgres", "mlflow", "service", "ray-head", "ray-worker", "agent")
# Each is killed once, the next when two more trials have ended. `test_production.py` kills those that are not here.
VICTIMS = ("service", "agent", "ray-head")
# Of these once more, and a new container takes the place of the killed one.
RECREATED = ("agent",)

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    with composed(Compose(servers=SERVERS)) as compose:
        yield compose


def test_the_stack_survives_kills_mirrors_to_mlflow_and_leaves_nothing_behind(compose: Compose) -> None:
    compose.wait_until_healthy()
    assert_hardened(compose)
    experiment = Experiment(compose.url)
    for number, victim in enumerate((*VICTIMS, *RECREATED)):
        experiment.wait_for(2 * number, compose.logs)
        compose("kill", victim)
        killed_at = datetime.now(UTC)
        how = ("--force-recreate", "--no-deps") if number >= len(VICTIMS) else ()
        compose("up", "--detach", "--no-build", *how, victim)
        if victim == "agent":
            wait_until(partial(agent_seen, compose.url, killed_at), AGENT_SECONDS, compose.logs)
            log = log_since(compose.containers("agent")[0], killed_at)
            assert "works under the name" not in log, "it had to wait for its name"
    ended = experiment.ended(compose.logs)
    experiment.assert_mirrored(compose.mlflow_port, compose.logs)
    assert f":{compose.mlflow_port}/" in ended["mlflow_url"]

    compose("down", "--volumes")
    assert compose.left_behind() == ""


def assert_hardened(compose: Compose) -> None:
    """No container can write to its root file system, and Paceline's run as its user."""
    for name in SERVERS:
        container = compose.containers(name)[0]
        assert docker("inspect", "--format", "{{.HostConfig.ReadonlyRootfs}}", container).strip() == "true", name
        if name != "postgres":
            assert docker("exec", container, "id", "--user").strip() == "1000", name
    for module in ("ray", "torch"):
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is not None)"
        docker("exec", compose.containers("service")[0], "python", "-c", code)
