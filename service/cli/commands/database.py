"""`paceline db`: the schema of the service's database."""

from typing import Annotated

import typer

from service.cli.process_log import set_up_log

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
