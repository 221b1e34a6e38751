"""`paceline db`: the service's database: its schema, and what it knows of MLflow."""

from typing import Annotated

import typer

from search.numbers_in_messages import counted
from service.cli.process_log import set_up_log
from service.settings import BadSettings, Settings

app = typer.Typer(help="Manage the service's database.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Upgrade the database (PACELINE_DATABASE_URL) to this version's schema. `paceline serve` does it, too."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415

    set_up_log("service")
    with upgraded_database():
        pass


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="The revision of the earlier version, such as 0012.")],
    lose_data: Annotated[
        bool, typer.Option("--lose-data", help="Downgrade although rows are deleted that the earlier schema lacks.")
    ] = False,
) -> None:
    """Take the database back to an earlier version's schema. Stop all services first, and make a backup.

    Run it with the version that is newer. It changes nothing if more would be lost than explanations, and says what.
    """
    from service.cli.upgraded_database import downgraded  # noqa: PLC0415

    typer.echo(f"The database has the schema of revision {downgraded(revision, lose_data=lose_data)}.")


@app.command()
def mirror_again(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments, by name or id; all without any.", metavar="[NAME]...")
    ] = None,
) -> None:
    """Have the service write everything to MLflow again, as into a new server, while it runs or later.

    Run it with the settings and the version of the service. What MLflow has already stays as it is.
    """
    from service.cli.upgraded_database import present_database  # noqa: PLC0415
    from service.operations.mirror_again import mirror_again  # noqa: PLC0415

    settings = Settings.from_env()
    if settings.mlflow_uri is None:
        raise BadSettings("PACELINE_MLFLOW_URI is not set: this command needs the settings of the service")
    with present_database(settings) as database:
        count = mirror_again(database, names or [])
    typer.echo(f"The service writes {counted(count, 'experiment')} to MLflow again.")
