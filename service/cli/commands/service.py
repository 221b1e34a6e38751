"""`paceline agent`, `doctor`, `backup`, `restore` and `db`: the processes of a deployment, and their data."""

import importlib
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from service.cli.commands.serve import PANEL
from service.cli.process_log import set_up_log
from service.cli.shared_options import DEFAULT_DATA_DIR, LOCAL_URL, AsJson, DataDir, Url, access_token
from service.cli.terminal import console
from service.clock import utc_now
from service.settings import Settings

app = typer.Typer()
database = typer.Typer(help="Manage the service's database.", no_args_is_help=True)


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
    set_up_log("agent", agent=name)
    # By name, since the service may import only the trainer's wire format; this command is the one exception.
    supervisor = importlib.import_module("trainer.agent.supervisor")
    raise typer.Exit(supervisor.supervise_agent(url, name, ray_address, access_token()))


@app.command(rich_help_panel=PANEL, epilog="Example: paceline doctor --ray-address auto --storage s3://bucket/paceline")
def doctor(
    url: Url = LOCAL_URL,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="Also check what each node of this Ray cluster reaches."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(envvar="PACELINE_STORAGE", help="The service's storage, to check that the nodes can write to it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the set-up: service, database, storage, MLflow, agents, clocks and versions. It says what to do.

    Run it where a client, an agent or the service runs; it checks what it sees from there and changes nothing.
    """
    from service.cli.doctor import check  # noqa: PLC0415
    from service.cli.doctor.run import run_checks  # noqa: PLC0415

    addresses = [one.strip() for one in url.split(",") if one.strip()]
    checks = list(run_checks(addresses, ray_address, storage))
    console.print_result([one.as_json() for one in checks], check.table(checks), as_json=as_json)
    if any(one.state is check.State.FAILED for one in checks):
        raise typer.Exit(console.EXIT_FAILED)


@app.command(rich_help_panel=PANEL, epilog="Example: paceline backup backups/monday.tar.gz")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Write the database, packages and logs to one file. The service may run meanwhile.

    Run it on the service's machine, with its settings. The checkpoints and MLflow's data are not in the file.
    """
    from service.backup.archive import back_up  # noqa: PLC0415
    from service.backup.failure import BackupFailed  # noqa: PLC0415

    try:
        back_up(_settings(data_dir), file.absolute(), utc_now())
    except (BackupFailed, OSError) as error:
        console.fail([str(error)], console.EXIT_FAILED)
    typer.echo(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB). To restore it: paceline restore {file}")


@app.command(rich_help_panel=PANEL, epilog="Example: paceline restore backups/monday.tar.gz --data-dir ~/restored")
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `paceline backup` has written.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Fill an empty database and data directory from a backup. Then start the service as usual."""
    from service.backup.archive import restore as restore_backup  # noqa: PLC0415
    from service.backup.failure import BackupFailed  # noqa: PLC0415

    try:
        manifest = restore_backup(_settings(data_dir), file.absolute())
    except (BackupFailed, OSError) as error:
        console.fail([str(error)], console.EXIT_FAILED)
    typer.echo(
        f"Restored the backup of {manifest.created_at}. Start the service as before (paceline up or serve): what ran at"
        " that time is run again, from its newest checkpoint"
    )


def _settings(data_dir: Path) -> Settings:
    return Settings.from_env({**os.environ, "PACELINE_DATA_DIR": str(data_dir)})


@database.command()
def upgrade() -> None:
    """Upgrade the database (PACELINE_DATABASE_URL) to this version's schema. `paceline serve` does it, too."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415

    set_up_log("service")
    with upgraded_database():
        pass


@database.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="The revision of the earlier version, such as 0012.")],
    lose_data: Annotated[
        bool, typer.Option("--lose-data", help="Downgrade although rows are deleted that the earlier schema lacks.")
    ] = False,
) -> None:
    """Take the database back to an earlier version's schema. Stop all services first, and make a backup.

    Run it with the version that is newer. It changes nothing if data would be lost, and says which.
    """
    from service.cli.upgraded_database import downgraded  # noqa: PLC0415

    typer.echo(f"The database has the schema of revision {downgraded(revision, lose_data=lose_data)}.")
