"""`paceline serve`: the service's process. The module imports little, so that the service starts fast."""

from typing import Annotated

import typer

from service.cli.process_log import set_up_log
from service.settings import MAX_PORT

PANEL = "Deployment"
app = typer.Typer()


@app.command(
    rich_help_panel=PANEL, epilog="All settings are PACELINE_* environment variables: see docs/reference/settings.md."
)
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to bind to; overrides PACELINE_HOST.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_PORT, help="Port to bind to; overrides PACELINE_PORT.", show_default="8000"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Serve other machines without access tokens (a trusted network), if PACELINE_REQUIRE_TOKENS is off.",
        ),
    ] = False,
) -> None:
    """Run the service alone: the HTTP API, its database and its background loops."""
    from service.cli import server  # noqa: PLC0415

    set_up_log("service")
    try:
        server.serve(host, port, insecure=insecure)
    except server.CannotServe as error:
        from service.cli.terminal import console  # noqa: PLC0415 - slow, and only for errors

        console.fail([str(error)], console.EXIT_FAILED)
