"""`paceline doctor`: checks the set-up of a deployment."""

from typing import Annotated

import typer

from service.cli.commands.serve import PANEL
from service.cli.options.shared_options import LOCAL_URL, AsJson, Url, addresses_in
from service.cli.terminal import console

app = typer.Typer()


@app.command(rich_help_panel=PANEL, epilog="Example: paceline doctor --ray-address auto --storage s3://bucket/paceline")
def doctor(
    url: Url = LOCAL_URL,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="Also check what each node of this Ray cluster reaches."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="PACELINE_STORAGE", help="With --ray-address: the storage that its nodes must be able to write to."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the set-up: service, database, storage, MLflow, agents, clocks and versions. It says what to do.

    Run it where a client, an agent or the service runs; it checks what it sees from there and changes nothing.
    """
    from service.cli.doctor import check  # noqa: PLC0415
    from service.cli.doctor.all_checks import run_checks  # noqa: PLC0415

    checks = list(run_checks(addresses_in(url), ray_address, storage))
    console.print_result([one.as_json() for one in checks], check.table(checks), as_json=as_json)
    if any(one.state is check.CheckState.FAILED for one in checks):
        raise typer.Exit(console.EXIT_FAILED)
