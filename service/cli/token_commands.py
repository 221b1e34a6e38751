"""`paceline token`: who may call a service that other machines can reach. Works on the database directly."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.domain.roles import Role

app = typer.Typer(help="Access tokens, on the service's machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Whose it is.")]


@app.command(epilog="Example: export PACELINE_TOKEN=$(paceline token create alice --role write)")
def create(name: Name, role: Annotated[Role, typer.Option(help="What it allows.")] = Role.WRITE) -> None:
    """Make a token and print it; nobody can read it again."""
    from service.cli import server  # noqa: PLC0415
    from service.operations.tokens import create_token  # noqa: PLC0415

    with server.upgraded_database() as database:
        typer.echo(create_token(database, name, role))


@app.command("ls")
def list_tokens() -> None:
    """List the tokens by name and role."""
    from service.cli import server  # noqa: PLC0415
    from service.operations.tokens import all_tokens  # noqa: PLC0415

    table = Table("name", "role", "created", box=None, pad_edge=False)
    with server.upgraded_database() as database:
        for token in all_tokens(database):
            table.add_row(token.name, token.role, f"{token.created_at:%Y-%m-%d %H:%M}")
    Console().print(table)


@app.command("rm")
def remove(name: Name) -> None:
    """Remove a token; whoever uses it is refused from now on."""
    from service.cli import server  # noqa: PLC0415
    from service.operations.tokens import remove_token  # noqa: PLC0415

    with server.upgraded_database() as database:
        remove_token(database, name)
