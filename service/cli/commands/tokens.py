"""`paceline token`: access tokens of a service that other machines can reach. Works on the database directly."""

from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.markup import escape

from service.cli.argument_values import BadArgument, duration
from service.cli.terminal import console
from service.cli.terminal.text_layout import table
from service.domain.roles import Role
from service.settings import Settings

app = typer.Typer(help="Manage access tokens; run it on the service's machine.", no_args_is_help=True)


def _name(text: str) -> str:
    from trainer.wire import is_storable_text  # noqa: PLC0415 - the other commands start without it

    if not text.strip():
        raise typer.BadParameter("must not be empty")
    if not is_storable_text(text):
        raise typer.BadParameter("must be text in UTF-8")
    return text


def _new_name(text: str) -> str:
    """Its length counts only here: SQLite may hold longer ones of an earlier version, which can be removed."""
    from service.store.tables import TOKEN_NAME_LENGTH  # noqa: PLC0415

    if len(text) > TOKEN_NAME_LENGTH:
        raise typer.BadParameter(f"must have at most {TOKEN_NAME_LENGTH} characters, not {len(text)}")
    return _name(text)


def _duration(text: str) -> timedelta:
    try:
        return duration(text)
    except BadArgument as error:
        raise typer.BadParameter(str(error)) from error


def _lifetime(text: str) -> timedelta:
    lifetime = _duration(text)
    if not lifetime:
        raise typer.BadParameter("must be longer than 0")
    return lifetime


NAME_HELP = "The token's name: who or what uses it."
Name = Annotated[str, typer.Argument(help=NAME_HELP, parser=_name, metavar="NAME")]
NewName = Annotated[str, typer.Argument(help=NAME_HELP, parser=_new_name, metavar="NAME")]


@app.command(epilog="Example: export PACELINE_TOKEN=$(paceline token create alice --role write --lifetime 90d)")
def create(
    name: NewName,
    role: Annotated[Role, typer.Option(help="What callers with this token may do.")] = Role.WRITE,
    lifetime: Annotated[
        timedelta | None,
        typer.Option(
            parser=_lifetime, metavar="TIME", help="How long it is valid: 90d, 12h.", show_default="no expiry"
        ),
    ] = None,
) -> None:
    """Create a token and print it. Only its digest is stored, so it cannot be shown again."""
    from service.cli.upgraded_database import upgraded_database  # noqa: PLC0415
    from service.operations.tokens import create_token  # noqa: PLC0415

    with upgraded_database() as database:
        typer.echo(create_token(database, name, role, lifetime))


@app.command(epilog="Example: paceline token rotate gpu-cluster --overlap 1h")
def rotate(
    name: Name,
    overlap: Annotated[
        timedelta | None,
        typer.Option(
            parser=_duration, metavar="TIME", help="How long the present token stays valid: 1h, 7d.", show_default="0s"
        ),
    ] = None,
    lifetime: Annotated[
        timedelta | None,
        typer.Option(
            parser=_lifetime,
            metavar="TIME",
            help="How long the new one is valid.",
            show_default="same lifetime as the present token",
        ),
    ] = None,
) -> None:
    """Replace a token by a new one with the same name and role, and print it."""
    from service.cli.upgraded_database import present_database  # noqa: PLC0415
    from service.operations.tokens import rotate_token  # noqa: PLC0415

    with present_database(Settings.from_env(), also_newer=True) as database:
        typer.echo(rotate_token(database, name, overlap=overlap or timedelta(0), lifetime=lifetime))


@app.command("ls")
def list_tokens() -> None:
    """List the tokens: name, role, and when each was created, expires and was last used."""
    from service.cli.upgraded_database import present_database  # noqa: PLC0415
    from service.operations.tokens import all_tokens  # noqa: PLC0415

    with present_database(Settings.from_env(), also_newer=True) as database:
        tokens = all_tokens(database)
    rows = [
        (escape(one.name), one.role, *map(_shown, (one.created_at, one.expires_at, one.last_used_at))) for one in tokens
    ]
    shown = table(("name", "role", "created (UTC)", "expires (UTC)", "last used (UTC)"), rows)
    console.print_result(None, shown, as_json=False)


@app.command("rm")
def remove(name: Name) -> None:
    """Remove a token. The service refuses it from then on, and ends its open streams within seconds."""
    from service.cli.upgraded_database import present_database  # noqa: PLC0415
    from service.operations.tokens import remove_token  # noqa: PLC0415

    with present_database(Settings.from_env(), also_newer=True) as database:
        remove_token(database, name)


def _shown(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "never"
