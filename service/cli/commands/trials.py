"""Commands about trials: logs, reports, decisions, checkpoints, enqueue, retry."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape

from search.numbers_in_messages import counted
from service.cli import argument_values
from service.cli.client.answers import Refused
from service.cli.client.client import Client, path_of
from service.cli.client.download import fetch_archive
from service.cli.options.shared_options import LOCAL_URL, AsJson, Experiment, Trial, Url, connect
from service.cli.options.trial_reference import check_trial, is_trial, trial_id
from service.cli.terminal import console, terminal_tables
from service.cli.terminal.followed_log import followed_log
from service.cli.terminal.log_output import log_output
from service.cli.terminal.outage import Outage

PANEL = "Trials"
app = typer.Typer()


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline logs digits#3 --follow\n\npaceline logs t-1f2e3d4c5b6a --rank 0 --tail 50",
)
def logs(
    trial: Trial,
    rank: Annotated[int | None, typer.Option(help="Only the output of this worker.", show_default="all")] = None,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", show_default="all")] = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of the attempt; logs of earlier attempts are kept.", show_default="the newest"
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the attempt ends.")] = False,
    url: Url = LOCAL_URL,
) -> None:
    """Print the output of a trial's workers."""
    with connect(url) as client:
        trial = trial_id(client, trial)
        if follow:
            chunks = followed_log(client, trial, rank, tail, attempt, Outage(console.say))
        else:
            chunks = client.logs(trial, rank, tail, attempt, follow=False)
        is_empty = True
        for text in log_output(chunks):
            typer.echo(text, nl=False)
            is_empty = False
        if rank and is_empty:
            _check_rank(client.trial(trial), rank)


def _check_rank(trial: dict[str, Any], rank: int) -> None:
    """Raises BadArgument for one that no attempt had. A validation has the one after the last."""
    sizes = [attempt["world_size"] for attempt in trial["attempts"]]
    if sizes and None not in sizes and rank > max(sizes):
        had = counted(max(sizes), "worker")
        raise argument_values.BadArgument(f"--rank: the trial has had {had}, whose ranks count from 0")


@app.command(rich_help_panel=PANEL)
def reports(trial: Trial, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Show the metrics that a trial reported, by step."""
    _print_list(url, trial, Client.reports, terminal_tables.reports, "No reports.", as_json=as_json)


@app.command(rich_help_panel=PANEL)
def decisions(trial: Trial, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Show the early-stopping decisions on a trial, each with its reason."""
    _print_list(url, trial, Client.decisions, terminal_tables.decisions, "No decisions.", as_json=as_json)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline checkpoints digits#3 --pin 20")
def checkpoints(
    trial: Trial,
    pin: Annotated[list[int] | None, typer.Option(metavar="STEP", help="Pin the checkpoint of this step.")] = None,
    unpin: Annotated[list[int] | None, typer.Option(metavar="STEP", help="Unpin the checkpoint of this step.")] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show where a trial's checkpoints are, newest first. A pinned one is kept until its experiment is deleted."""
    with connect(url) as client:
        trial = trial_id(client, trial)
        for step in pin or ():
            client.pin_checkpoint(trial, step)
        for step in unpin or ():
            client.unpin_checkpoint(trial, step)
        shown = client.trial(trial)
    best = shown["checkpoint"] if shown.get("best_step") is not None else None
    checkpoints_table = partial(terminal_tables.checkpoints, best_step=best["step"] if best else None)
    _print_list(url, trial, Client.checkpoints, checkpoints_table, "No checkpoints.", as_json=as_json)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline retention digits --keep-best-trials 3")
def retention(
    experiment: Experiment,
    keep_best_trials: Annotated[
        int | None, typer.Option(min=1, help="Preview with this value instead of the spec's.")
    ] = None,
    keep_last: Annotated[
        bool | None, typer.Option("--keep-last/--no-keep-last", help="Preview with this value instead of the spec's.")
    ] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show which checkpoints of an experiment would be removed now, and why the others are kept. Removes nothing."""
    tried = {"keep_best_trials": keep_best_trials, "keep_last": keep_last}
    with connect(url) as client:
        plan = client.checkpoint_plan(experiment, {name: value for name, value in tried.items() if value is not None})
    shown = terminal_tables.checkpoint_plan(plan) if plan["items"] else "No checkpoints."
    console.print_result(plan, shown, as_json=as_json)


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline fetch digits\n\npaceline fetch t-1f2e3d4c5b6a --step 20 --to models"
    "\n\npaceline fetch digits --tensorboard",
)
def fetch(
    source: Annotated[
        str,
        typer.Argument(metavar="NAME_OR_TRIAL", help="An experiment's best trial, or a trial's id or NAME#NUMBER."),
    ],
    step: Annotated[
        int | None,
        typer.Option(
            help="The step of the checkpoint; not with --tensorboard.",
            show_default="the newest, or with report: best the best",
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="The event files of the trial, or of all trials of the experiment.")
    ] = False,
    to: Annotated[Path, typer.Option(help="The parent of the new directory.")] = Path(),
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Download a checkpoint, or TensorBoard's event files. Run it again to resume an interrupted download."""
    if tensorboard:
        if step is not None:
            raise typer.BadParameter("applies to checkpoints; leave it out with --tensorboard", param_hint="--step")
        _fetch_event_files(url, source, to, as_json=as_json)
        return
    with connect(url) as client:
        trial = client.trial(trial_id(client, source)) if is_trial(source) else _best_of(client, source)
        step = step if step is not None else _step_to_fetch(trial)
        target = to / f"trial-{trial['number']}-step-{step}"
        fetch_archive(client, path_of("trials", trial["id"], "checkpoints", step, "archive"), target)
    result = {"trial": trial["id"], "number": trial["number"], "step": step, "path": str(target.resolve())}
    console.print_result(
        result, f"The checkpoint of trial {trial['number']}, step {step}, is in {escape(str(target))}", as_json=as_json
    )


def _fetch_event_files(url: str, source: str, to: Path, *, as_json: bool) -> None:
    target = to / f"{source}-tensorboard"
    with connect(url) as client:
        whose = path_of("trials", trial_id(client, source)) if is_trial(source) else path_of("experiments", source)
        fetch_archive(client, f"{whose}/tensorboard/archive", target)
    result = {"path": str(target.resolve())}
    shown = escape(f"The event files are in {target}: tensorboard --logdir {target}")
    console.print_result(result, shown, as_json=as_json)


def _best_of(client: Client, experiment: str) -> dict[str, Any]:
    best = client.best(experiment)
    if "items" in best:
        raise argument_values.BadArgument(
            f"{experiment} has several objectives, and {counted(best['count'], 'trial')} on its Pareto front: "
            "fetch one of them by its id; `paceline best` lists them"
        )
    return best


def _step_to_fetch(trial: dict[str, Any]) -> int:
    """The step of the checkpoint that the service shows with the trial."""
    if trial["checkpoint"] is None:
        raise argument_values.BadArgument(f"trial {trial['number']} ({trial['id']}) has no checkpoint")
    return int(trial["checkpoint"]["step"])


@app.command(
    rich_help_panel=PANEL,
    epilog="Examples:\n\npaceline enqueue digits configurations.yaml\n\npaceline enqueue digits '{params: {lr: 0.1}}'",
)
def enqueue(
    experiment: Experiment,
    document: Annotated[
        str, typer.Argument(metavar="FILE_OR_JSON", help="{params: {…}}, or a list of these; JSON, or a YAML file.")
    ],
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Add your own configurations to an experiment. They run before any that the sampler proposes."""
    with connect(url) as client:
        trials = client.enqueue(experiment, argument_values.read_document(document))
    console.print_result(trials, terminal_tables.trials(trials, datetime.now(UTC)), as_json=as_json)


@app.command(rich_help_panel=PANEL, epilog="Examples:\n\npaceline retry digits#3\n\npaceline retry digits --failed")
def retry(
    target: Annotated[
        str, typer.Argument(metavar="TRIAL", help="A trial's id (t-…) or NAME#NUMBER; with --failed an experiment.")
    ],
    failed: Annotated[bool, typer.Option("--failed", help="All failed trials of the experiment.")] = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Queue a failed or stopped trial again, or all that have failed. They resume from their newest checkpoints."""
    if failed and is_trial(target):
        raise argument_values.BadArgument(f"--failed takes an experiment; {target} is a trial")
    with connect(url) as client:
        if not failed:
            queued = client.retry_trial(trial_id(client, check_trial(target)))
            console.print_result(queued, f"{target} is queued again.", as_json=as_json)
            return
        retried, refused = _retried_all(client, target)
    if refused and not retried:
        raise refused[0]
    queued_again = f"{counted(len(retried), 'failed trial')} of {target} queued again."
    console.print_result(retried, queued_again if retried else f"{target} has no failed trial.", as_json=as_json)
    if refused:
        raise refused[0]


def _retried_all(client: Client, experiment: str) -> tuple[list[dict[str, Any]], list[Refused]]:
    """The failed trials that are queued again, and why others are not, such as one that another user has just retried.

    All are tried.
    """
    retried, refused = [], []
    for one in list(client.trials(experiment, status="failed")):
        try:
            retried.append(client.retry_trial(one["id"]))
        except Refused as error:
            refused.append(error)
    return retried, refused


def _print_list(
    url: str,
    trial: str,
    fetch: Callable[[Client, str], Iterator[dict[str, Any]]],
    table: Callable[[Iterable[dict[str, Any]]], RenderableType],
    empty: str,
    *,
    as_json: bool,
) -> None:
    with connect(url) as client:
        found = list(fetch(client, trial_id(client, trial)))
    console.print_result(found, table(found) if found else empty, as_json=as_json)
