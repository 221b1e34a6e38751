"""An upgrade from an earlier version, and back, while an experiment runs, as docs/operations/upgrades.md says."""

from collections.abc import Iterator

import pytest

from tests.stack.compose import Compose, Experiment, composed, skip_without_engine
from tests.stack.earlier_release import build_earlier_images, earlier_revision
from tests.stack.production import MANY, production
from tests.stack.watcher import RETRYABLE, Watcher

SERVICES = ("service", "service-2")
OTHERS = ("mlflow", "ray-head", "ray-worker", "agent")

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    skip_without_engine()
    images = {
        "PACELINE_IMAGE": "paceline-test-earlier:latest",
        "PACELINE_NODE_IMAGE": "paceline-test-earlier-node:latest",
    }
    build_earlier_images(images, tmp_path_factory.mktemp("earlier"))
    return images


@pytest.fixture(scope="module")
def compose(earlier: dict[str, str]) -> Iterator[Compose]:
    with composed(production(), earlier) as compose:
        yield compose


def test_an_experiment_runs_on_through_an_upgrade_and_back(compose: Compose, earlier: dict[str, str]) -> None:
    compose.wait_until_healthy()
    experiment = Experiment(compose.url)
    experiment.limit(MANY)
    experiment.wait_for(1, compose.logs)
    with Watcher(f"{compose.url}/v1/experiments") as watcher:
        compose.env |= compose.images
        compose("run", "--rm", "--no-deps", "migrate")
        for name in SERVICES:
            replace(compose, name)
            experiment.wait_for(experiment.finished() + 1, compose.logs)
        replace(compose, *OTHERS)
        experiment.wait_for(experiment.finished() + 1, compose.logs)

        compose.env |= earlier
        replace(compose, "agent")
        for name in SERVICES:
            replace(compose, name)
            experiment.wait_for(experiment.finished() + 1, compose.logs)
    assert set(watcher.failures_since(0)) <= RETRYABLE, watcher.failures
    assert not internal_errors(compose)

    compose("stop", *SERVICES)
    compose.env |= compose.images
    compose("run", "--rm", "--no-deps", "migrate", "paceline", "db", "downgrade", earlier_revision())
    compose.env |= earlier
    replace(compose, *SERVICES)
    experiment.wait_for(experiment.finished() + 1, compose.logs)
    experiment.limit_to_present()
    experiment.ended(compose.logs)
    experiment.assert_mirrored(compose.mlflow_port, compose.logs)


def replace(compose: Compose, *names: str) -> None:
    """Puts containers of the image that is set in the place of these, and waits until they are healthy."""
    assert not internal_errors(compose)  # of containers whose logs go with them
    compose("up", "--detach", "--no-build", "--no-deps", *names)
    compose.wait_until_healthy(*names)


def internal_errors(compose: Compose) -> list[str]:
    """What the services have logged of calls that they answered with 500; agents and slots repeat those."""
    lines = compose("logs", "--no-color", *SERVICES).splitlines()
    return [line for line in lines if '"service.api.http.problems"' in line and ' failed"' in line]
