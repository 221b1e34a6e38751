"""What Ray gets of the runtime environment that a specification asks for, and what its failures say."""

import pytest
from ray.exceptions import RuntimeEnvSetupError

from trainer.ray_train.processes.runtime_environments import worker_runtime_env
from trainer.slot.attempt.failure_classification import classify
from trainer.slot.user_package import UserPackage
from trainer.wire import RuntimeEnv

pytestmark = pytest.mark.ray


def test_ray_gets_what_is_set_and_the_requirements_of_the_package() -> None:
    package = UserPackage("a-slot")
    package.requirements = ["b==2"]
    given = {"pip": {"packages": ["a==1"], "from_package": True, "pip_check": True}, "env_vars": {"A": "b"}}
    asked_for = RuntimeEnv.model_validate(given).model_dump(mode="json")
    assert package.runtime_env(asked_for) == {
        "pip": {"packages": ["a==1", "b==2"], "pip_check": True},
        "env_vars": {"A": "b"},
    }
    conda = RuntimeEnv.model_validate({"conda": "train", "config": {"setup_timeout_seconds": 9}}).model_dump()
    assert package.runtime_env(conda) == {
        "conda": "train",
        "config": {"setup_timeout_seconds": 9, "eager_install": True},
    }
    assert package.runtime_env(None) == {}


def test_variables_of_both_places_reach_the_workers() -> None:
    found = worker_runtime_env({"B": "2"}, {"num_workers": 1}, {"pip": {"packages": ["a"]}, "env_vars": {"A": "1"}})
    assert found == {"pip": {"packages": ["a"]}, "env_vars": {"A": "1", "B": "2"}}


PIP = """Failed to set up runtime environment.
Traceback (most recent call last):
  File "/x/ray/_private/runtime_env/utils.py", line 1, in check_output_cmd
ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[3] failed with the following details.
Command '['python', '-m', 'pip']' returned non-zero exit status 1.
Last 50 lines of stdout:
    Looking in links: /wheels
    ERROR: Could not find a version that satisfies the requirement nothing==1 (from versions: none)
    ERROR: No matching distribution found for nothing==1
"""


def test_a_failed_installation_says_so_with_the_installers_last_lines() -> None:
    error = RuntimeError("the controller failed")
    error.__cause__ = RuntimeEnvSetupError(PIP)
    failure = classify(error, workers="1 worker", storage="/storage", has_oom_kill=False)
    assert failure.kind == "cannot_start"
    assert failure.message == (
        "trainer.runtime_env could not be set up: ERROR: Could not find a version that satisfies the requirement "
        "nothing==1 (from versions: none) ERROR: No matching distribution found for nothing==1"
    )
    assert (failure.traceback or "").startswith("Looking in links: /wheels\n")


CONDA = """Failed to set up runtime environment.
[Node 127.0.0.1] Traceback (most recent call last):
  File "/x/ray/_private/runtime_env/conda_utils.py", line 143, in create_conda_env_if_needed
    raise RuntimeError(
RuntimeError: Failed to install conda environment /x/conda/41572ff9:
Output:
Channel: file:///channel
Platform: linux-64
Collecting package metadata (repodata.json): ...working... done
Solving environment: ...working... failed

PackagesNotFoundInChannelsError: The following packages are not available from current channels:

  - nosuchpackage=1.0

Current channels:

  - file:///channel

To search for alternate channels that may provide the conda package you're
looking for, navigate to

    https://anaconda.org

and use the search bar at the top of the page.
"""
"""Of conda 26.9, with an environment.yml in the specification."""

NO_CONDA_ENVIRONMENT = """Failed to set up runtime environment.
[Node 127.0.0.1] Traceback (most recent call last):
  File "/x/ray/_private/runtime_env/conda.py", line 383, in create
    return await loop.run_in_executor(None, _create)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/x/ray/_private/runtime_env/conda.py", line 345, in _create
    raise ValueError(
ValueError: The given conda environment 'absent' from the runtime env {'conda': 'absent'} doesn't exist
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            CONDA,
            "PackagesNotFoundInChannelsError: The following packages are not available from current channels: - nosuch",
        ),
        (
            NO_CONDA_ENVIRONMENT,
            "ValueError: The given conda environment 'absent' from the runtime env {'conda': 'absent'} doesn't exist",
        ),
    ],
)
def test_a_failure_of_conda_says_what_conda_said(text: str, says: str) -> None:
    failure = classify(RuntimeEnvSetupError(text), workers="1 worker", storage="/storage", has_oom_kill=False)
    assert failure.message.startswith(f"trainer.runtime_env could not be set up: {says}")


def test_the_output_of_conda_is_kept_without_rays_own_traceback() -> None:
    failure = classify(RuntimeEnvSetupError(CONDA), workers="1 worker", storage="/storage", has_oom_kill=False)
    assert (failure.traceback or "").startswith("Channel: file:///channel\n")


TIMEOUT = """Failed to set up runtime environment.
[Node 127.0.0.1] Failed to install runtime_env within the timeout of 30 seconds. Consider increasing the timeout.
If not provided, the default timeout is 600 seconds. Traceback (most recent call last):
  File "/x/ray/_private/runtime_env/agent/runtime_env_agent.py", line 561, in _create_runtime_env_with_retry
    runtime_env_context = await asyncio.wait_for(
  File "/x/python3.11/asyncio/tasks.py", line 502, in wait_for
    raise exceptions.TimeoutError() from exc
TimeoutError
"""
"""Of Ray, shortened."""


def test_an_installation_that_takes_too_long_says_which_field_to_raise() -> None:
    failure = classify(RuntimeEnvSetupError(TIMEOUT), workers="1 worker", storage="/storage", has_oom_kill=False)
    assert failure.message == (
        "trainer.runtime_env could not be set up: it took longer than "
        "trainer.runtime_env.config.setup_timeout_seconds (30): raise it"
    )
