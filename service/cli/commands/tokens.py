"""`paceline token`: access tokens of a service that other machines can reach. Works on the database directly."""

from typing import Annotated

import typer
from rich.table import Table

from service.cli import console
from service.domain.roles import Role

app = typer.Typer(help="Manage access tokens; run it on the service's machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The token's name: who or what uses it.")]


@app.command(epilog="Example: export PACELINE_TOKEN=$(paceline token create alice --role write)")
def create(
    name: Name, role: Annotated[Role, typer.Option(help="What callers with this token may do.")] = Role.WRITE
) -> None:
    """Create a token and print it. Only its digest is stored, so it cannot be shown again."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415
    from service.operations.tokens import create_token  # noqa: PLC0415

    with upgraded_database() as database:
        typer.echo(create_token(database, name, role))


@app.command("ls")
def list_tokens() -> None:
    """List the tokens: name, role, time of creation."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415
    from service.operations.tokens import all_tokens  # noqa: PLC0415

    table = Table("name", "role", "created", box=None, pad_edge=False)
    with upgraded_database() as database:
        for token in all_tokens(database):
            table.add_row(token.name, token.role, f"{token.created_at:%Y-%m-%d %H:%M}")
    console.out.print(table)


@app.command("rm")
def remove(name: Name) -> None:
    """Remove a token. The service refuses it from then on."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415
    from service.operations.tokens import remove_token  # noqa: PLC0415

    with upgraded_database() as database:
        remove_token(database, name)
