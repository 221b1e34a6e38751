"""Which commands print JSON, and that the documentation says which do not."""

from pathlib import Path

import typer

from service.cli.commands import analysis, experiments, lifecycle, trials

REFERENCE = Path(__file__).parents[4] / "docs/reference/cli.md"


def commands_without_json(*apps: typer.Typer) -> set[str]:
    callbacks = [command.callback for one in apps for command in one.registered_commands]
    return {one.__name__ for one in callbacks if one is not None and "as_json" not in one.__annotations__}


def test_the_documentation_names_the_commands_that_print_no_json() -> None:
    without = commands_without_json(experiments.app, lifecycle.app, trials.app, analysis.app)
    assert without == {"logs", "watch", "delete"}
    assert "Without `--json` are `logs`, `watch` and `delete`." in REFERENCE.read_text()
