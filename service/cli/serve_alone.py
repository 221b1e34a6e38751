"""`paceline serve` as a program without the other commands."""

import typer

from service.cli.commands import serve
from service.errors import ServiceError
from service.settings import BadSettings, DatabaseAway

app = typer.Typer(rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
app.add_typer(serve.app)


@app.callback()
def paceline() -> None:
    """Makes Typer expect the command's name although there is only one."""


def main() -> None:
    try:
        app()
    except (BadSettings, ServiceError) as error:
        from service.cli.terminal import console  # noqa: PLC0415 - slow, and only for errors

        console.fail([str(error)], console.EXIT_FAILED if isinstance(error, DatabaseAway) else console.EXIT_USAGE)
