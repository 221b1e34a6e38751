"""The output of each rank, as files: `logs/<trial>/<attempt>/rank-<rank>.log`."""

from pathlib import Path

from service.errors import InsufficientStorage
from service.operations.context import Context
from service.operations.leases import check_lease
from trainer.wire import LogChunk


def take_log(context: Context, trial_id: str, token: str | None, chunk: LogChunk) -> None:
    """Idempotent: a chunk stands at its offset. Raises LeaseLost, Unauthorized, InsufficientStorage."""
    with context.database.read() as session:
        attempt = check_lease(session, trial_id, token).number
    path = _directory(context, trial_id, attempt) / f"rank-{chunk.rank}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(chunk.offset)
            file.write(chunk.text.encode())
    except OSError as error:
        raise InsufficientStorage(f"the log could not be written: {error.strerror}") from error


def log_files(context: Context, trial_id: str, attempt: int, rank: int | None) -> list[tuple[int, Path]]:
    """(rank, file) of the attempt, by rank."""
    found = [
        (int(path.stem.removeprefix("rank-")), path)
        for path in _directory(context, trial_id, attempt).glob("rank-*.log")
    ]
    return sorted(entry for entry in found if rank is None or entry[0] == rank)


def _directory(context: Context, trial_id: str, attempt: int) -> Path:
    return context.settings.logs_dir / trial_id / str(attempt)
