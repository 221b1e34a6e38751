"""`paceline backup` and `restore`: the data of a deployment."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.commands.serve import PANEL
from service.cli.options.shared_options import DEFAULT_DATA_DIR, DataDir
from service.cli.terminal import console
from service.clock import utc_now
from service.settings import Settings

app = typer.Typer()


@app.command(rich_help_panel=PANEL, epilog="Example: paceline backup backups/monday.tar.gz")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Write the database, packages and logs to one file. The service may run meanwhile.

    Run it on the service's machine, with its settings. The checkpoints and MLflow's data are not in the file.
    """
    from service.backup.backup_file import back_up  # noqa: PLC0415
    from service.backup.failure import BackupFailed  # noqa: PLC0415

    try:
        with _ended_by_signals():
            back_up(_settings(data_dir), file.absolute(), utc_now())
    except (BackupFailed, OSError) as error:
        console.fail([str(error)], console.EXIT_FAILED)
    typer.echo(f"Wrote {file} ({file.stat().st_size / 1e6:,.1f} MB). To restore it: paceline restore {file}")


@app.command(rich_help_panel=PANEL, epilog="Example: paceline restore backups/monday.tar.gz --data-dir ~/restored")
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `paceline backup` has written.")],
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Fill an empty database and data directory from a backup. If either is not empty, nothing is changed.

    Then start the service as usual. What ran at the time of the backup is run again.
    """
    from service.backup.backup_file import restore as restore_backup  # noqa: PLC0415
    from service.backup.failure import BackupFailed  # noqa: PLC0415
    from service.cli.database_lock import DatabaseInUse, database_lock  # noqa: PLC0415

    settings = _settings(data_dir)
    try:
        with _ended_by_signals(), database_lock(settings.database_url):
            manifest = restore_backup(settings, file.absolute())
    except (BackupFailed, DatabaseInUse, OSError) as error:
        console.fail([str(error)], console.EXIT_FAILED)
    typer.echo(
        f"Restored the backup of {manifest.created_at}, and revoked the leases of that time. Start the service as"
        " before (paceline up or serve): what ran then is run again, from its newest checkpoint"
    )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that closes, raise SystemExit in the block.

    So it removes its temporary files. `nohup` has SIGHUP ignored, and it stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    handled = [number for number in before if number == signal.SIGTERM or before[number] != signal.SIG_IGN]

    def end(number: int, _: Any) -> None:
        for each in handled:  # a closing terminal sends SIGHUP twice, and nothing is to disturb the removal of the copy
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _settings(data_dir: Path) -> Settings:
    return Settings.from_env({**os.environ, "PACELINE_DATA_DIR": str(data_dir)})
