"""All commands of `paceline` by help panel, and errors without tracebacks.

Every command goes through the HTTP API, except up, demo, serve, agent, db and token. A command imports slow modules
(uvicorn, Ray, SQLAlchemy) inside its function, so that the other commands start fast.
"""

import os
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from service.cli import argument_values, code_archive
from service.cli.client.answers import SHOW_TRACEBACK, UNREADABLE, Refused, Unreachable, read_at, unreadable
from service.cli.client.download import CannotFetch
from service.cli.commands import (
    agent,
    analysis,
    backup,
    database,
    doctor,
    experiments,
    lifecycle,
    serve,
    stack,
    tokens,
    trials,
)
from service.cli.terminal.console import EXIT_FAILED, EXIT_USAGE, fail
from service.errors import ServiceError
from service.settings import BadSettings, DatabaseAway

app = typer.Typer(
    help="Hyperparameter tuning over Ray Train: submit an experiment, watch it, take the best trial.",
    epilog="Start with [bold]paceline up[/bold]; then, in another terminal: "
    "[bold]paceline submit examples/quickstart/experiment.yaml --watch[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(stack.app)
app.add_typer(experiments.app)
app.add_typer(lifecycle.app)
app.add_typer(trials.app)
app.add_typer(analysis.app)
app.add_typer(serve.app)
app.add_typer(agent.app)
app.add_typer(doctor.app)
app.add_typer(backup.app)
app.add_typer(database.app, name="db", rich_help_panel=serve.PANEL)
app.add_typer(tokens.app, name="token", rich_help_panel=serve.PANEL)


def main() -> None:
    """Run the command line. An error that the user can correct becomes a message and an exit code."""
    try:
        app()
    except Refused as refused:
        fail(refused.errors, EXIT_USAGE, refused.hints)
    except Unreachable as error:
        fail([str(error)], EXIT_FAILED, error.hints)
    except (CannotFetch, DatabaseAway) as error:
        fail([str(error)], EXIT_FAILED)
    except (argument_values.BadArgument, code_archive.CannotPack, BadSettings, ServiceError) as error:
        fail([str(error)], EXIT_USAGE)
    except UNREADABLE as error:
        address = read_at.get()
        if address is None or os.environ.get(SHOW_TRACEBACK) == "1":
            raise
        fail([unreadable(address, error)], EXIT_FAILED)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {installed_version('paceline')}")
        raise typer.Exit


@app.callback()
def paceline(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hyperparameter tuning over Ray Train: submit an experiment, watch it, take the best trial."""
