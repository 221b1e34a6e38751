"""The reference names everything that there is: statuses and moves, calls, errors, settings, samplers and rules."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pytest
import typer
import yaml

from search.early_stopping.registry import RULES
from search.early_stopping.rules.wrappable_rules import PLUGINS
from search.samplers.registry import OWN_SAMPLERS
from service.app.application import create_app
from service.cli.all_commands import app
from service.domain import end_reasons
from service.domain.end_reasons import REVERSIBLE_ENDS, EndReason
from service.domain.roles import Role
from service.domain.statuses import EXPERIMENT_MOVES, TRIAL_MOVES, TRIAL_REVIVALS, ExperimentStatus, TrialStatus
from service.errors import ServiceError
from service.settings import Settings
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec
from tests.architecture.openapi_snapshot import current
from trainer.wire import FailureKind, Kind

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
INTERNAL_VARIABLES = {"PACELINE_STACK", "PACELINE_OOM_COUNTER", "PACELINE_THREADS"}
"""Set by Paceline for its own processes."""
COMMAND_VARIABLES = {f"PACELINE_{name}" for name in ("PARAMS", "CONFIG", "CHECKPOINT_DIR", "REPORT_URL", "LEASE")}
"""Set by a worker for the program of a trial of kind `command`."""

DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)
END_REASON = re.compile(r"^\| `(\w+)` \| (\w+) \|", re.MULTILINE)
SECTION = re.compile(r"^## (\S+)\n\n(.*?)(?=\n## |\Z)", re.MULTILINE | re.DOTALL)
RULES_HERE = RULES.keys() - PLUGINS.kinds.keys()
VARIABLE = re.compile(r"\bPACELINE_[A-Z_]+[A-Z]\b")

Moves = set[tuple[str, str]]
Status = TypeVar("Status", bound=StrEnum)


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def _documented_moves() -> list[Moves]:
    return [set(ARROW.findall(diagram)) for diagram in DIAGRAM.findall(_page("concepts/experiments-and-trials.md"))]


def _moves(moves: Mapping[Status, frozenset[Status]]) -> Moves:
    return {(source.value, target.value) for source, targets in moves.items() for target in targets}


def test_the_documented_moves_of_experiments_are_those_of_the_code() -> None:
    status_after = dict(END_REASON.findall(_page("concepts/experiments-and-trials.md")))
    revivals = {(status_after[reason.value], ExperimentStatus.RUNNING.value) for reason in REVERSIBLE_ENDS}
    documented, _ = _documented_moves()
    assert documented == _moves(EXPERIMENT_MOVES) | revivals


def test_the_documented_status_of_an_ended_experiment_is_that_of_the_code() -> None:
    (status_after,) = (
        value for value in vars(end_reasons).values() if isinstance(value, dict) and set(value) == {*EndReason}
    )
    documented = dict(END_REASON.findall(_page("concepts/experiments-and-trials.md")))
    assert {reason: documented.get(reason) for reason in status_after} == status_after


def test_the_documented_moves_of_trials_are_those_of_the_code() -> None:
    _, documented = _documented_moves()
    assert documented == _moves(TRIAL_MOVES) | _moves(TRIAL_REVIVALS)


def test_every_status_is_in_a_diagram() -> None:
    experiments, trials = ({name for move in moves for name in move} for moves in _documented_moves())
    assert experiments == {status.value for status in ExperimentStatus}
    assert trials == {status.value for status in TrialStatus}


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("concepts/experiments-and-trials.md", EndReason),
        ("concepts/experiments-and-trials.md", FailureKind),
        ("guides/dependencies.md", set(Kind) - {Kind.EXTERNAL}),
        ("guides/team.md", Role),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_page_names_all_of_them(page: str, names: Iterable[str]) -> None:
    assert not _missing(names, _page(page)), f"add these to docs/{page}"


@pytest.mark.parametrize(
    ("page", "names"),
    [("concepts/search.md", OWN_SAMPLERS), ("concepts/early-stopping.md", RULES_HERE - {"none"})],
    ids=["samplers", "rules"],
)
def test_each_of_them_has_a_row_of_its_own(page: str, names: Iterable[str]) -> None:
    """Elsewhere on the page its name may be an option's."""
    first_cells = re.findall(r"^\|([^|]*)\|", _page(page), re.MULTILINE)
    assert not _missing(names, "".join(first_cells)), f"add a row for each to the table in docs/{page}"


@pytest.mark.parametrize(
    ("field", "names"),
    [("search.sampler", OWN_SAMPLERS), ("early_stopping.rule", RULES_HERE), ("trainer.kind", Kind)],
    ids=["samplers", "rules", "kinds"],
)
def test_the_reference_of_a_field_names_all_of_them(field: str, names: Iterable[str]) -> None:
    page = "reference/specification.md"
    rows = [line for line in _page(page).splitlines() if line.startswith(f"| `{field}` |")]
    assert not _missing(names, "".join(rows)), f"add these to the row of {field} in docs/{page}"


def _missing(names: Iterable[str], text: str) -> list[str]:
    return [name for name in map(str, names) if f"`{name}`" not in text]


def test_the_description_of_the_sampler_names_all_of_them() -> None:
    described = current()["components"]["schemas"]["SamplerSpec"]["properties"]["sampler"]["description"]
    advice = "add these to the description of SamplerSpec.sampler, and run tests.architecture.openapi_snapshot"
    assert not _missing(OWN_SAMPLERS, described), advice


def test_the_reference_names_every_field_of_a_specification() -> None:
    text = _page("reference/specification.md")
    missing = [name for name in ExperimentSpec.model_fields if not re.search(rf"`{name}[`.]", text)]
    assert not missing, "add these to docs/reference/specification.md"


def test_the_references_example_is_a_valid_specification() -> None:
    example = re.search(r"^```yaml\n(.*?)^```", _page("reference/specification.md"), re.MULTILINE | re.DOTALL)
    assert example
    assert parse_spec(yaml.safe_load(example[1])).name == "digits"


def test_the_reference_names_every_call(tmp_path: Path) -> None:
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)})
    paths = create_app(settings).openapi()["paths"]
    missing = [call for call in _calls(paths) if call not in _page("reference/api.md")]
    assert not missing, "add these to docs/reference/api.md"


def _calls(paths: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    for path, methods in paths.items():
        short = path.replace("{experiment}", "{x}").replace("{trial}", "{t}")
        yield from (f"{method.upper()} {short}`" for method in methods)


def test_the_reference_names_every_command() -> None:
    text = _page("reference/cli.md")
    missing = [name for name in _commands() if f"`paceline {name}" not in text]
    assert not missing, "add these to docs/reference/cli.md"


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield from group.commands


def test_the_reference_names_every_option() -> None:
    text = _page("reference/cli.md")
    missing = {option for option in _options(typer.main.get_command(app)) if not re.search(rf"`[^`]*{option}\b", text)}
    assert not missing, "add these to docs/reference/cli.md"


def _options(command: Any) -> Iterator[str]:
    """The long ones, of the command and of those below it."""
    for one in getattr(command, "commands", {}).values():
        yield from _options(one)
    for parameter in command.params:
        names = (*parameter.opts, *parameter.secondary_opts)
        yield from (name for name in names if name.startswith("--") and not getattr(parameter, "hidden", False))


def test_the_reference_names_every_error() -> None:
    text, link = _page("reference/api.md"), "[`{0}`](errors.md#{0})"
    assert not [error.type for error in _errors(ServiceError) if link.format(error.type) not in text]


def test_every_error_has_a_section_that_says_what_to_do() -> None:
    sections = dict(SECTION.findall(_page("reference/errors.md")))
    assert {error.type for error in _errors(ServiceError)} == sections.keys()
    for error in _errors(ServiceError):
        assert sections[error.type].startswith(f"`{error.status}`. "), error.type
        assert len(sections[error.type]) > 80, error.type  # characters


def _errors(parent: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for error in parent.__subclasses__():
        yield error
        yield from _errors(error)


def test_the_reference_names_every_setting_and_no_other() -> None:
    sources = [path.read_text() for folder in ("service", "trainer") for path in (ROOT / folder).rglob("*.py")]
    used = {name for source in sources for name in VARIABLE.findall(source)} - INTERNAL_VARIABLES - COMMAND_VARIABLES
    assert set(VARIABLE.findall(_page("reference/settings.md"))) == used


def test_the_guide_names_every_variable_of_a_command_and_no_other() -> None:
    source = (ROOT / "trainer/worker/commands/command.py").read_text()
    assert set(VARIABLE.findall(source)) == COMMAND_VARIABLES == set(VARIABLE.findall(_page("guides/commands.md")))
