"""Cleanup after a stack that was killed: by its guardian immediately, or else by the next stack in the data directory.

The guardian is a process that reads from a pipe whose other end only the stack holds. When the stack ends, in whatever
way, the pipe closes, and the guardian cleans up: `python -m service.stack.orphan_cleanup TAG DIRECTORY`.
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from service.module_command import module_command
from service.stack.process_tags import kill_tagged

PREFIX = "paceline-"
"""The names of temporary directories start with it. No other directory is ever removed."""


@dataclass(frozen=True)
class CleanupRecord:
    """What a stack leaves behind if it is killed: its processes, by tag, and its temporary directory.

    `lock` identifies the lock file that the stack holds, by inode and folder; a device's number may differ after a
    restart of the machine. A copy of the data directory has the record, too, but another lock file, so that holding
    that one does not mean that the stack has ended. Empty in the record of an earlier version.
    """

    tag: str
    directory: str
    lock: str = ""

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """Return the record of an earlier stack. None when that stack cleaned up, or was killed while it wrote."""
        try:
            return cls(**json.loads(file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """A stack calls this before it starts its first process."""
        file.write_text(json.dumps(asdict(self)))

    def clean_up(self) -> None:
        """Kill the processes and remove the directory. May be repeated. Raises Unkillable."""
        kill_tagged(self.tag)
        if Path(self.directory).name.startswith(PREFIX):
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def guardian_command(self) -> list[str]:
        """The guardian's command. It contains the record, since the file may be the next stack's by then."""
        return module_command(__name__, self.tag, self.directory)


if __name__ == "__main__":
    record = CleanupRecord(*sys.argv[1:])
    sys.stdin.buffer.read()
    record.clean_up()
