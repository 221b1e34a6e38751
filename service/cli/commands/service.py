"""`paceline serve`, `agent` and `db`: the processes of a deployment, and the database's schema."""

import importlib
import logging
import socket
from typing import Annotated

import typer

from service.cli import console
from service.cli.shared_options import LOCAL_URL, Url, access_token
from service.runtime import garbage_collection

PANEL = "Deployment"
app = typer.Typer()
database = typer.Typer(help="Manage the service's database.", no_args_is_help=True)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@app.command(
    rich_help_panel=PANEL, epilog="All settings are PACELINE_* environment variables: see docs/reference/settings.md."
)
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to bind to; overrides PACELINE_HOST.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to bind to; overrides PACELINE_PORT.", show_default="8000")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without access tokens (a trusted network).")
    ] = False,
) -> None:
    """Run the service alone: the HTTP API, its database and its background loops."""
    with garbage_collection.frozen_afterwards():
        from service.cli import server  # noqa: PLC0415

    _log_to_stderr()
    try:
        server.serve(host, port, insecure=insecure)
    except server.CannotServe as error:
        console.fail([str(error)], console.EXIT_FAILED)


@app.command(
    rich_help_panel=PANEL, epilog="Example: paceline agent --ray-address 10.0.0.5:6379 --url http://paceline:8000"
)
def agent(
    url: Url = LOCAL_URL,
    ray_address: Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="The Ray cluster to run trials on.")] = "auto",
    name: Annotated[str | None, typer.Option(help="Unique among agents.", show_default="this host's name")] = None,
) -> None:
    """Run an agent: it takes trials from the service and runs them on a Ray cluster. Start one beside each cluster.

    While the cluster or the service is unreachable, the agent waits and tries again.
    """
    _log_to_stderr()
    # By name, since the service may import only the trainer's wire format; this command is the one exception.
    supervisor = importlib.import_module("trainer.agent.supervisor")
    raise typer.Exit(supervisor.supervise_agent(url, name or socket.gethostname(), ray_address, access_token()))


@database.command()
def upgrade() -> None:
    """Upgrade the database (PACELINE_DATABASE_URL) to this version's schema. `paceline serve` does it, too."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415

    with upgraded_database():
        pass
