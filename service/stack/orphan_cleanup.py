"""What a stack leaves when it is killed: ended at once by its guardian, or else by the next stack in the directory.

The guardian is a process that does nothing but read from a pipe which only the stack holds: when the stack is gone,
however it went, the pipe ends.
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from service.stack.process_tags import end_marked

PREFIX = "paceline-"


@dataclass(frozen=True)
class Leftovers:
    """The mark of a stack's processes, and the directory of its temporary files."""

    mark: str
    directory: str

    @classmethod
    def read(cls, record: Path) -> Self | None:
        """What an earlier stack wrote there; None when it left nothing, or was killed while it wrote."""
        try:
            return cls(**json.loads(record.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, record: Path) -> None:
        """To be done before the first process is started."""
        record.write_text(json.dumps(asdict(self)))

    def remove(self) -> None:
        """Harmless when there is nothing. Raises Unkillable."""
        end_marked(self.mark)
        if Path(self.directory).name.startswith(PREFIX):
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def guardian(self) -> list[str]:
        """The command that waits for the end of its input and then removes them.

        It is told what to remove, since by then the record may be the next stack's.
        """
        return [sys.executable, "-m", __name__, self.mark, self.directory]


if __name__ == "__main__":
    leftovers = Leftovers(*sys.argv[1:])
    sys.stdin.buffer.read()
    leftovers.remove()
