"""Schemathesis calls everything that openapi.json has, with valid and invalid data, and finds nothing untrue."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.contract.operations import some_names
from tests.conftest import Api

RUN_SECONDS = 3000
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
REQUEST_SECONDS = 120
CHECKS = ("--checks", "all", "--max-response-time", str(REQUEST_SECONDS))
"""How long a response takes depends on what else the machine does: no limit but that of the request."""
CONFIG = """
hooks = "{hooks}"
request-timeout = {seconds}
suppress-health-check = ["too_slow"]

# An experiment that is deleted by its id is also gone by its name: to this check, one that was created and is missing.
[checks.ensure_resource_availability]
enabled = false

# A stream of events, and a log that is followed, end when the experiment does.
[parameters]
"query.follow" = false

[dictionaries]
experiments = {{ values = ["{experiment}", "no-experiment"] }}
trials = {{ values = ["{trial}", "t-000000000000"] }}
packages = {{ values = ["{package}", "sha256:0"] }}

[parameters."path.experiment"]
dictionary = "experiments"
probability = 0.8
[parameters."path.trial"]
dictionary = "trials"
probability = 0.8
[parameters."path.package"]
dictionary = "packages"
probability = 0.8

# What makes a document a spec, a configuration of this space, a zip or the next piece of a log, no JSON schema can say.
[[operations]]
include-operation-id = [
    "create_experiment", "change_experiment", "enqueue_trials", "preview_space", "replay_early_stopping",
    "get_importance", "create_package", "claim_trial", "send_log", "send_reports",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409", "413", "422"]

# A cursor is any text to a JSON schema, and must be one that a list has given.
[[operations]]
include-operation-id-regex = "^list_|^get_best$|^get_checkpoint_plan$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409"]
"""


def run_schemathesis(service: Api, directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    names, _ = some_names(service)
    config, url = directory / "schemathesis.toml", str(service.http.base_url)
    config.write_text(CONFIG.format(hooks=HOOKS, seconds=REQUEST_SECONDS, **names))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", f"{url}/openapi.json"]
    return subprocess.run(
        [*map(str, command), *CHECKS, "--no-color", "--continue-on-failure", *arguments],
        env=os.environ | {"PACELINE_URL": url},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


PHASES = {"sqlite": ("examples,coverage,fuzzing,stateful", 3), "postgresql": ("examples,fuzzing,stateful", 20)}
"""By database, the phases and the examples for each call.

The boundary values of all parameters and fields, of the phase "coverage", take minutes. Most of them are refused before
a database is asked.
"""


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS + 100)
@pytest.mark.parametrize(
    ("database_url", "phases", "examples"), [(name, *one) for name, one in PHASES.items()], indirect=["database_url"]
)
def test_openapi_json_says_what_is_true(service: Api, tmp_path: Path, phases: str, examples: int) -> None:
    arguments = ["--seed", "1", "--max-examples", str(examples), "--phases", phases]
    found = run_schemathesis(service, tmp_path, *arguments)
    assert found.returncode == 0, found.stdout + found.stderr
