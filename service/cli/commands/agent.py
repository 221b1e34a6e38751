"""`paceline agent`: the process that runs trials on a Ray cluster."""

import importlib
import os
import socket
from typing import Annotated

import typer

from service.cli.commands.serve import PANEL
from service.cli.options.shared_options import LOCAL_URL, Url, access_token
from service.cli.process_log import set_up_log
from service.settings import switch

app = typer.Typer()


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
    name = name or socket.gethostname()
    switch(os.environ, "PACELINE_TRACING")  # refuses one that is misspelled
    set_up_log("agent", agent=name)
    # By name, since the service may import only the trainer's wire format; this command is the one exception.
    supervisor = importlib.import_module("trainer.agent.supervisor")
    raise typer.Exit(supervisor.supervise_agent(url, name, ray_address, access_token()))
