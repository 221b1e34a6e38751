"""Commands that act on a live experiment: pause, resume, stop, cancel, change, delete."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

from search.numbers_in_messages import counted
from service.cli.options import set_option
from service.cli.options.shared_options import LOCAL_URL, AsJson, Experiment, Url, connect
from service.cli.options.trial_reference import is_trial, trial_id
from service.cli.terminal import console

PANEL = "Control of experiments"
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def pause(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Start no new trials of an experiment; running trials finish."""
    with connect(url) as client:
        paused = client.pause(experiment)
    console.print_result(
        paused, f"{paused['name']} is paused. To continue: paceline resume {experiment}", as_json=as_json
    )


@app.command(rich_help_panel=PANEL)
def resume(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Start trials of a paused, stopped or cancelled experiment again."""
    with connect(url) as client:
        resumed = client.resume(experiment)
    console.print_result(resumed, f"{resumed['name']} is {resumed['status']}.", as_json=as_json)


@app.command(rich_help_panel=PANEL)
def stop(
    target: Annotated[str, typer.Argument(help="An experiment's name or id, or a trial's id (t-…) or NAME#NUMBER.")],
    cancel: Annotated[bool, typer.Option("--cancel", hidden=True)] = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Stop an experiment, or one trial. Running trials leave at their next report, with its checkpoint, if any."""
    if cancel and is_trial(target):
        raise typer.BadParameter("applies to experiments only", param_hint="--cancel")
    with connect(url) as client:
        if is_trial(target):
            stopped = client.stop_trial(trial_id(client, target))
        else:
            stopped = client.cancel(target) if cancel else client.stop_experiment(target)
    console.print_result(stopped, _end_of(stopped, target, "is being stopped"), as_json=as_json)


@app.command(rich_help_panel=PANEL)
def cancel(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Stop an experiment immediately: running trials are killed without saving a checkpoint."""
    with connect(url) as client:
        cancelled = client.cancel(experiment)
    console.print_result(cancelled, _end_of(cancelled, experiment, "is being cancelled"), as_json=as_json)


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline change digits --set limits.max_trials=64 --set tags.team=vision\n\n"
    "paceline change digits --set limits.max_seconds=null",
)
def change(
    experiment: Experiment,
    settings: Annotated[
        list[str], typer.Option("--set", help="FIELD=VALUE with the value in JSON; null removes the field.")
    ],
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Change the spec of a live experiment. An experiment that ended by a limit runs again when the limit is raised."""
    patch = set_option.patch_from(settings)
    with connect(url) as client:
        before = client.experiment(experiment)
        changed = client.change(experiment, patch)
    what = "is changed" if changed["spec"] != before["spec"] else "has these values already"
    lines = [f"{changed['name']} {what}; it is {changed['status']}."]
    lines += [_field_text(changed["spec"], names) for names in set_option.fields_of(patch)]
    console.print_result(changed, "\n".join(lines), as_json=as_json)


@app.command(rich_help_panel=PANEL)
def delete(
    experiment: Experiment,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete without asking, as it does where there is no terminal.")
    ] = False,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Leave the checkpoints on the storage.")
    ] = False,
    url: Url = LOCAL_URL,
) -> None:
    """Delete an ended experiment with its trials, logs and checkpoints. Its MLflow runs stay."""
    with connect(url) as client:
        found = client.experiment(experiment)
        if sys.stdin.isatty() and not yes:
            count = sum(found["counts"].values())
            whose = "its" if count == 1 else "their"
            what = counted(count, "trial") + ("" if keep_checkpoints else f" and {whose} checkpoints")
            typer.confirm(f"Delete {found['name']} with {what}?", abort=True)
        client.delete(found["id"], keep_checkpoints=keep_checkpoints)
    console.out.print(f"{found['name']} is deleted; the name is free again.", highlight=False)


def _field_text(spec: dict[str, Any], names: Sequence[str]) -> str:
    """The value that a field has now: a default, where null removed the field."""
    value: Any = spec
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return escape(f"{set_option.path_text(names)}: {json.dumps(value)}")


def _end_of(target: dict[str, Any], name: str, happening: str) -> str:
    """The sentence about an experiment or a trial that a user ended."""
    if target.get("ended_at"):
        return f"{name} has ended: {target['status']}."
    return f"{name} {happening}."
