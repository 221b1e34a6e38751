"""`paceline up` and `paceline demo`: the whole stack on this machine."""

import sys
from typing import Annotated

import typer

from service.cli.options.shared_options import DEFAULT_DATA_DIR, DataDir, MlflowPort, Port, access_token
from service.cli.process_log import set_up_log
from service.cli.terminal import console

PANEL = "Everything on this machine"
app = typer.Typer()


@app.command(rich_help_panel=PANEL, epilog="Example: paceline up --port 8100 --mlflow-port 5100 --data-dir ~/tuning")
def up(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    until_stdin_closes: Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)] = False,
    port: Port = 8000,
    mlflow_port: MlflowPort = 5000,
    mlflow: Annotated[bool, typer.Option(help="Run an MLflow server and mirror experiments to it.")] = True,
    cpus: Annotated[int | None, typer.Option(min=1, help="Ray's logical CPUs.", show_default="at least 8")] = None,
) -> None:
    """Run Ray, MLflow, the service and an agent on this machine until Ctrl-C."""
    from service.stack import up as stack  # noqa: PLC0415
    from service.stack.process_tags import Unkillable  # noqa: PLC0415
    from service.stack.supervisor import ComponentFailed  # noqa: PLC0415
    from service.stack.up_options import CannotStart, Options  # noqa: PLC0415

    set_up_log("up")
    try:
        options = Options(data_dir, port, mlflow_port, mlflow, cpus, access_token())
        stack.run(options, lifeline=sys.stdin.fileno() if until_stdin_closes else None)
    except (CannotStart, ComponentFailed, Unkillable) as error:
        console.fail([str(error)], console.EXIT_FAILED)


@app.command(rich_help_panel=PANEL)
def demo(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    port: Port = 8000,
    mlflow_port: MlflowPort = 5000,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running afterwards.")] = False,
) -> None:
    """Start the stack, run examples/digits with a live view, and stop the stack (`make demo`)."""
    from service.cli import demo as digits_demo  # noqa: PLC0415

    try:
        ended = digits_demo.run(data_dir, port, mlflow_port, console.out, keep=keep)
    except digits_demo.DemoFailed as error:
        console.fail([str(error)], console.EXIT_FAILED)
    raise typer.Exit(console.exit_code_of(ended))
