"""Commands that submit experiments and show them: submit, watch, wait, ls, show, best."""

import signal
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from search.numbers_in_messages import counted
from service.cli import submission
from service.cli.argument_values import BadArgument
from service.cli.client.client import Client
from service.cli.options import set_option
from service.cli.options.shared_options import LOCAL_URL, AsJson, Experiment, Url, connect
from service.cli.options.trial_reference import is_trial, trial_id
from service.cli.terminal import console, progress_view, terminal_tables, trial_facts
from service.cli.terminal.end_wait import WAIT_EXIT_CODES, ended_experiment
from service.cli.terminal.outage import Outage

PANEL = "Experiments"
SHOWN_TRIALS = 200
"""How many trials `show` prints if nothing is said: the newest. Thousands of lines take the terminal many seconds."""
app = typer.Typer()


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline submit examples/digits/experiment.yaml --watch\n\n"
    "paceline submit experiment.yaml --code train.py --name second-try\n\n"
    "paceline submit experiment.yaml --unique --set limits.max_trials=1 --set config.epochs=2",
)
def submit(
    spec: Annotated[Path, typer.Argument(help="The experiment's spec: YAML or JSON.", exists=True, dir_okay=False)],
    code: Annotated[
        Path | None,
        typer.Option(
            help="A file, a .zip or a folder to send as its code.",
            show_default="the spec's folder, if its code is there",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the experiment.", show_default="the name in the spec")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="FIELD=VALUE, with the value in JSON, instead of what the spec has; null removes the field."
        ),
    ] = None,
    unique: Annotated[
        bool, typer.Option("--unique", help="Add -2, -3, … to the name if an experiment has it already.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the experiment until it ends.")] = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Submit an experiment, with its code: the spec's folder, if the entrypoint or a file of the command is in it."""
    changes = submission.Changes(set_option.patch_from(settings or []), name, unique)
    with connect(url) as client:
        created = submission.submit(client, spec, code, changes)
        console.print_warnings(created.get("warnings", ()))
        if as_json or not watch:
            console.print_result(created, _submitted(created), as_json=as_json)
        if watch:
            _follow(client, created["id"], console.err if as_json else console.out)


def _submitted(created: dict[str, Any]) -> str:
    name, limits = created["name"], created["spec"]["limits"]
    most = limits["max_trials"]
    amount = "any number of trials" if most is None else f"up to {counted(most, 'trial')}"
    amount += f", {limits['parallelism']} at a time"
    text = f"{name} ({created['id']}) is {created['status']}: {amount}. To follow it: paceline watch {name}"
    return escape("\n".join(filter(None, [text, progress_view.waiting_text(created)])))


@app.command(rich_help_panel=PANEL)
def watch(experiment: Experiment, url: Url = LOCAL_URL) -> None:
    """Follow an experiment until it ends. The exit code is 1 when it failed."""
    with connect(url) as client:
        _follow(client, experiment, console.out)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline wait digits && paceline fetch digits")
def wait(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Wait until an experiment has ended. The exit code is 0 if it completed, 3 if it failed, 4 if it was stopped."""
    with connect(url) as client:
        ended = ended_experiment(client, experiment, Outage(console.say))
    console.print_result(ended, _how_it_ended(ended), as_json=as_json)
    raise typer.Exit(WAIT_EXIT_CODES[ended["status"]])


def _how_it_ended(ended: dict[str, Any]) -> str:
    """`digits failed (too_many_failures): 3 of 10 trials failed`"""
    reason = f" ({ended['end_reason']})" if ended.get("end_reason") else ""
    return escape(": ".join(filter(None, [f"{ended['name']} {ended['status']}{reason}", ended.get("end_detail")])))


@app.command(rich_help_panel=PANEL)
def ls(
    status: Annotated[
        str | None, typer.Option(help="Only this status: running, paused, completed, failed or stopped.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only those with this tag.")] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """List the experiments, newest first."""
    if tag is not None and "=" not in tag:
        raise BadArgument(f"--tag must be NAME=VALUE, as in owner=alice; not {tag!r}")
    with connect(url) as client:
        found = list(client.experiments(status, tag.replace("=", ":", 1) if tag else None))
    shown = terminal_tables.experiments(found) if found else "No experiments."
    console.print_result(found, shown, as_json=as_json)


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline show digits --top 10\n\npaceline show digits --status failed\n\n"
    "paceline show digits#3 --json",
)
def show(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_TRIAL", help="An experiment's name or id, or a trial's id (t-…) or NAME#NUMBER."
        ),
    ],
    status: Annotated[
        str | None,
        typer.Option(
            help="Only trials with this status: queued, running, paused, completed, pruned, stopped or failed."
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the N best, by the first objective.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help=f"All trials, also of an experiment with more than {SHOWN_TRIALS} of them.")
    ] = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show an experiment and its trials, or a trial and its attempts."""
    with connect(url) as client:
        if is_trial(target):
            if status or top or show_all:
                raise BadArgument("--status, --top and --all choose trials of an experiment; the target is a trial")
            one = client.trial(trial_id(client, target))
            console.print_result(one, trial_facts.trial(one, datetime.now(UTC)), as_json=as_json)
            return
        found = client.experiment(target)
        trials = list(islice(client.trials(found["id"], status=status, best_first=top is not None), top))
    shown = trials if show_all or top else trials[-SHOWN_TRIALS:]
    table = terminal_tables.experiment(found, shown, datetime.now(UTC), left_out=len(trials) - len(shown))
    console.print_result(found | {"trials": trials}, table, as_json=as_json)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline best digits --json | jq .params")
def best(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Show the best trial with its value, parameters and checkpoint; with several objectives, the Pareto front."""
    with connect(url) as client:
        found = client.best(experiment)
        metric = client.experiment(experiment)["spec"]["objectives"][0]["metric"]
    console.print_result(found, terminal_tables.best(found, metric, datetime.now(UTC)), as_json=as_json)


def _follow(client: Client, experiment: str, output: Console) -> None:
    from service.cli.terminal.watch import watch_experiment  # noqa: PLC0415

    try:
        ended = watch_experiment(client, experiment, output)
    except KeyboardInterrupt:
        console.err.print(
            f"\nThe experiment keeps running. To stop it: [bold]paceline stop {experiment}[/bold]; to follow it again: "
            f"[bold]paceline watch {experiment}[/bold]",
            highlight=False,
        )
        raise typer.Exit(128 + signal.SIGINT) from None
    raise typer.Exit(console.exit_code_of(ended))
