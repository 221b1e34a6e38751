"""The mistakes that are found while a document is read."""

from dataclasses import dataclass, field

from search.mistakes import Mistake, Path
from service.errors import MAX_MISTAKES, Invalid


@dataclass
class MistakeList:
    """As many as an answer names; the others are counted, so that a document full of mistakes takes little memory."""

    _first: list[Mistake] = field(default_factory=list)
    _more: int = 0

    def add(self, path: Path, message: str) -> None:
        if len(self._first) < MAX_MISTAKES:
            self._first.append(Mistake(path, message))
        else:
            self._more += 1

    def refuse(self) -> None:
        """Raises Invalid if there are any."""
        if self._first:
            raise Invalid(self._first, self._more)
