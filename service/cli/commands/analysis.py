"""Commands that analyse a search: importance, replay, preview."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli import submission
from service.cli.options import set_option
from service.cli.options.shared_options import LOCAL_URL, AsJson, Experiment, Url, connect
from service.cli.terminal import analysis_tables, console

PANEL = "Analysis"
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def importance(
    experiment: Experiment,
    metric: Annotated[
        str | None, typer.Option(help="The objective to explain.", show_default="the first objective")
    ] = None,
    evaluator: Annotated[
        str, typer.Option(help="ped_anova (what the best trials share) or fanova (what changes the value).")
    ] = "ped_anova",
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show how much each parameter matters, by the values or, with early stopping, the curve scores of the trials."""
    with connect(url) as client:
        found = client.importance(experiment, metric, evaluator)
    console.print_result(found, analysis_tables.importance(found), as_json=as_json)


@app.command(
    rich_help_panel=PANEL,
    epilog="Example: paceline replay digits --rule asha --set min_step=1 --set reduction_factor=2",
)
def replay(
    experiment: Experiment,
    rule: Annotated[str, typer.Option(help="The early-stopping rule: asha, hyperband, median, …")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="OPTION=VALUE: an option of the rule, the value in JSON.")
    ] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show what another early-stopping rule would have done with the recorded reports. It changes nothing."""
    with connect(url) as client:
        found = client.replay(experiment, set_option.patch_from(settings or [], "reduction_factor=2") | {"rule": rule})
    console.print_result(found, analysis_tables.replay(found), as_json=as_json)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline preview examples/digits/experiment.yaml -n 5")
def preview(
    spec: Annotated[
        Path, typer.Argument(help="A spec, or a part with its space: YAML or JSON.", exists=True, dir_okay=False)
    ],
    count: Annotated[int, typer.Option("--count", "-n", help="How many configurations to draw.")] = 10,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show what a search space holds, and configurations that its sampler would propose. Nothing runs."""
    with connect(url) as client:
        found = client.preview(submission.preview_document(spec, count))
    console.print_result(found, analysis_tables.preview(found), as_json=as_json)
