"""What a trial names in its package: relative paths, and the requirements that `pip: from_package` installs.

Both sides use this: the service checks an experiment when it is submitted, and the trainer reads the package.
"""

import re

REQUIREMENTS_FILE = "requirements.txt"
"""The file of a package that `from_package` stands for."""

_COMMENT = re.compile(r"(^|\s)#.*")


def is_in_package(path: str) -> bool:
    """Whether it is relative. Others are URIs, or lead to what all nodes have."""
    return "://" not in path and not path.startswith("/")


def requirements_in(content: bytes) -> list[tuple[int, str]]:
    """The requirements in a `requirements.txt`, each with the number of its first line.

    As pip reads them: without comments, and with lines joined that end with a backslash. Raises UnicodeDecodeError.
    """
    found: list[tuple[int, str]] = []
    joined, first = "", 1
    for number, line in enumerate([*content.decode("utf-8-sig").splitlines(), ""], 1):
        if not joined:
            first = number
        joined += _COMMENT.sub("", line)
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if requirement := joined.strip():
            found.append((first, requirement))
        joined = ""
    return found
