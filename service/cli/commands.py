"""The command line, `paceline`. All but up, demo, serve, agent, db and token go through the HTTP API alone.

What is slow to import (uvicorn, Ray, SQLAlchemy) is imported by the command that needs it: the others answer at once.
"""

import importlib
import json
import logging
import os
import signal
import socket
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from service.cli import arguments, code_archive, submission, terminal_tables, token_commands
from service.cli.client import Client, Refused, Unreachable
from service.errors import ServiceError
from service.runtime import garbage_collection
from service.settings import BadSettings

FAILED, USAGE = 1, 2

app = typer.Typer(
    help="Hyperparameter tuning over Ray Train: submit an experiment, watch it, take the best trial.",
    epilog="Start with [bold]paceline up[/bold]; then, in another terminal: "
    "[bold]paceline submit examples/digits/experiment.yaml --watch[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
database = typer.Typer(help="The service's database.", no_args_is_help=True)
app.add_typer(database, name="db")
app.add_typer(token_commands.app, name="token")
# Piped output has no width of its own, and tables should not be cut to 80 columns there.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200)
err = Console(stderr=True)

Url = Annotated[str, typer.Option("--url", envvar="PACELINE_URL", help="The service's address.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for scripts.")]
Experiment = Annotated[str, typer.Argument(help="An experiment's name or id.")]
Trial = Annotated[str, typer.Argument(help="A trial's id; `paceline show` lists them.")]
DataDir = Annotated[Path, typer.Option(envvar="PACELINE_DATA_DIR", help="Where everything is kept.")]
Port = Annotated[int, typer.Option(envvar="PACELINE_PORT", help="The API's port; 0 takes a free one.")]
MlflowPort = Annotated[int, typer.Option(envvar="PACELINE_MLFLOW_PORT", help="MLflow's port; 0 takes a free one.")]
LOCAL = "http://127.0.0.1:8000"
HERE = Path("paceline-data")


def main() -> None:
    """The entry point: what a person can put right becomes a message and an exit code, not a traceback."""
    try:
        app()
    except Refused as refused:
        _fail(refused.lines(), USAGE)
    except (arguments.BadArgument, code_archive.CannotPack, BadSettings, ServiceError) as error:
        _fail([str(error)], USAGE)
    except Unreachable as error:
        _fail([str(error)], FAILED)


def _fail(lines: list[str], code: int) -> NoReturn:
    for line in lines:
        err.print(f"[red]error:[/red] {escape(line)}", soft_wrap=True, highlight=False)
    sys.exit(code)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _connect(url: str) -> Client:
    return Client(url, os.environ.get("PACELINE_TOKEN"))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {installed_version('paceline')}")
        raise typer.Exit


@app.callback()
def paceline(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Hyperparameter tuning over Ray Train: submit an experiment, watch it, take the best trial."""


@app.command(epilog="Example: paceline up --port 8100 --mlflow-port 5100 --data-dir ~/tuning")
def up(
    data_dir: DataDir = HERE,
    port: Port = 8000,
    mlflow_port: MlflowPort = 5000,
    mlflow: Annotated[bool, typer.Option(help="Run an MLflow server and mirror to it.")] = True,
    cpus: Annotated[int | None, typer.Option(help="Ray's logical CPUs.", show_default="at least 8")] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: Ray, MLflow, the service and an agent."""
    from service.stack import up as stack  # noqa: PLC0415
    from service.stack.supervisor import PartFailed  # noqa: PLC0415

    try:
        stack.run(stack.Options(data_dir, port, mlflow_port, mlflow, cpus))
    except (stack.CannotStart, PartFailed) as error:
        _fail([str(error)], FAILED)


@app.command(hidden=True)
def demo(
    data_dir: DataDir = HERE,
    port: Port = 8000,
    mlflow_port: MlflowPort = 5000,
    keep: Annotated[bool, typer.Option(help="Leave the stack running.")] = False,
) -> None:
    """Start the stack, run examples/digits with a live view, and stop the stack again."""
    from service.cli import demo as show  # noqa: PLC0415

    try:
        ended = show.run(data_dir, port, mlflow_port, out, keep=keep)
    except show.DemoFailed as error:
        _fail([str(error)], FAILED)
    raise typer.Exit(_code_of(ended))


@app.command(epilog="Settings come from PACELINE_* variables; see the documentation.")
def serve(
    host: Annotated[str | None, typer.Option(help="Overrides PACELINE_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Overrides PACELINE_PORT.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let other machines call it.")] = False,
) -> None:
    """Run the service alone: the HTTP API, its database and its background work."""
    with garbage_collection.frozen_afterwards():
        from service.cli import server  # noqa: PLC0415

    _log_to_stderr()
    try:
        server.serve(host, port, insecure=insecure)
    except server.CannotServe as error:
        _fail([str(error)], FAILED)


@app.command(epilog="Example: paceline agent --ray-address 10.0.0.5:6379 --url http://paceline:8000")
def agent(
    url: Url = LOCAL,
    ray_address: Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="The Ray cluster to run trials on.")] = "auto",
    name: Annotated[str | None, typer.Option(help="Unique among agents.", show_default="this host's name")] = None,
) -> None:
    """Run trials for a service on a Ray cluster; start one beside each cluster. It waits for a cluster that is away."""
    _log_to_stderr()
    # By name: the service's code knows nothing of the trainer but its wire, and this command is the trainer's door.
    supervisor = importlib.import_module("trainer.agent.supervisor")
    raise typer.Exit(
        supervisor.keep_agent(url, name or socket.gethostname(), ray_address, os.environ.get("PACELINE_TOKEN"))
    )


@app.command(
    epilog="Examples: paceline submit examples/digits/experiment.yaml --watch   "
    "paceline submit experiment.yaml --code train.py --name second-try"
)
def submit(
    spec: Annotated[Path, typer.Argument(help="The experiment: YAML or JSON.", exists=True, dir_okay=False)],
    code: Annotated[Path | None, typer.Option(help="File or folder to send.", show_default="the spec's folder")] = None,
    name: Annotated[str | None, typer.Option(help="Instead of the name in the spec.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    as_json: AsJson = False,
    url: Url = LOCAL,
) -> None:
    """Send an experiment, with the code beside its spec."""
    with _connect(url) as client:
        created = submission.submit(client, spec, code, name)
        if as_json:
            _print_json(created)
        elif not watch:
            out.print(f"{created['name']} ({created['id']}) runs. Follow it: paceline watch {created['name']}")
        if watch:
            _watch(client, created["id"])


@app.command()
def watch(experiment: Experiment, url: Url = LOCAL) -> None:
    """Follow an experiment to its end. Exit code 1 when it failed."""
    with _connect(url) as client:
        _watch(client, experiment)


def _watch(client: Client, experiment: str) -> None:
    from service.cli import live_view  # noqa: PLC0415

    try:
        ended = live_view.watch(client, experiment, out)
    except KeyboardInterrupt:
        err.print("\nIt goes on without you. Stop it: [bold]paceline stop[/bold]", highlight=False)
        raise typer.Exit(128 + signal.SIGINT) from None
    raise typer.Exit(_code_of(ended))


def _code_of(ended: dict[str, Any]) -> int:
    return FAILED if ended["status"] == "failed" else 0


@app.command()
def ls(
    status: Annotated[str | None, typer.Option(help="Only those: running, paused, completed, failed, stopped.")] = None,
    as_json: AsJson = False,
    url: Url = LOCAL,
) -> None:
    """List the experiments, newest first."""
    with _connect(url) as client:
        found = list(client.experiments(status))
    if as_json:
        _print_json(found)
    else:
        out.print(terminal_tables.experiments(found) if found else "No experiments yet.")


@app.command()
def show(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL) -> None:
    """Show an experiment and its trials."""
    with _connect(url) as client:
        found = client.experiment(experiment)
        trials = list(client.trials(found["id"]))
    if as_json:
        _print_json(found | {"trials": trials})
    else:
        out.print(terminal_tables.experiment(found, trials))


@app.command(epilog="Example: paceline best digits --json | jq .params")
def best(experiment: Experiment, as_json: AsJson = False, url: Url = LOCAL) -> None:
    """Show the best trial: parameters, value, checkpoint; with several objectives the Pareto front."""
    with _connect(url) as client:
        found = client.best(experiment)
        metric = client.experiment(experiment)["spec"]["objectives"][0]["metric"]
    if as_json:
        _print_json(found)
    else:
        out.print(terminal_tables.best(found, metric))


@app.command(epilog="Example: paceline logs t-1f2e3d4c5b6a --rank 0 --tail 50")
def logs(
    trial: Trial,
    rank: Annotated[int | None, typer.Option(help="Only this worker's.", show_default="all")] = None,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", show_default="all")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the trial ends.")] = False,
    url: Url = LOCAL,
) -> None:
    """Print what a trial's workers wrote."""
    with _connect(url) as client:
        for text in client.logs(trial, rank, tail, follow=follow):
            typer.echo(text, nl=False)


@app.command()
def stop(
    target: Annotated[str, typer.Argument(help="An experiment's name or id, or a trial's id (t-…).")],
    cancel: Annotated[bool, typer.Option("--cancel", help="At once: no last checkpoint (experiments only).")] = False,
    url: Url = LOCAL,
) -> None:
    """Stop an experiment, or one trial; running trials get to save a checkpoint."""
    is_trial = target.startswith("t-")
    if is_trial and cancel:
        raise typer.BadParameter("is for experiments; a trial can be stopped", param_hint="--cancel")
    with _connect(url) as client:
        client.stop_trial(target) if is_trial else client.stop_experiment(target, cancel=cancel)
    out.print(f"{target} is told to {'end at once' if cancel else 'stop'}.", highlight=False)


@app.command(
    epilog="Examples: paceline change digits --set limits.max_trials=64 --set tags.team=vision   "
    "paceline change digits --set limits.max_seconds=null"
)
def change(
    experiment: Experiment,
    settings: Annotated[list[str], typer.Option("--set", help="FIELD=VALUE, the value in JSON; null takes it away.")],
    url: Url = LOCAL,
) -> None:
    """Change an experiment's spec while it lives. One that a limit has ended runs again when that limit is moved."""
    with _connect(url) as client:
        changed = client.change(experiment, arguments.patch_of(settings))
    out.print(f"{changed['name']} is changed; it is {changed['status']}.", highlight=False)


@app.command(
    epilog="Examples: paceline enqueue digits configurations.yaml   paceline enqueue digits '{params: {lr: 0.1}}'"
)
def enqueue(
    experiment: Experiment,
    given: Annotated[str, typer.Argument(metavar="FILE_OR_JSON", help="{params: …}, or a list of such.")],
    as_json: AsJson = False,
    url: Url = LOCAL,
) -> None:
    """Have configurations of your own tried before anything that the search proposes."""
    with _connect(url) as client:
        trials = client.enqueue(experiment, arguments.document_in(given))
    if as_json:
        _print_json(trials)
    else:
        out.print(terminal_tables.trials(trials))


@app.command()
def retry(trial: Trial, url: Url = LOCAL) -> None:
    """Queue a failed or stopped trial again; it goes on from its newest checkpoint."""
    with _connect(url) as client:
        client.retry_trial(trial)
    out.print(f"{trial} is queued again.", highlight=False)


@database.command("upgrade")
def upgrade() -> None:
    """Bring the database (PACELINE_DATABASE_URL) to this version's schema; `serve` does so by itself."""
    from service.cli import server  # noqa: PLC0415

    with server.upgraded_database():
        pass
