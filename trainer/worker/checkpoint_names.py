"""Which names `ray.train.report(checkpoint_dir_name=…)` may give a checkpoint."""

import os
import posixpath
import string
from typing import Any

MAX_BYTES = 240
"""The limit of each part between slashes. File systems take 255, and Paceline may add the number of the report."""

LITERAL_IN_URI = frozenset(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@/")
"""Other characters have a meaning in a URI, or none: the checkpoint would be saved where no attempt finds it again."""


def checked_name(name: Any, *, is_in_uri: bool) -> str:
    """Return the name without needless parts such as `./`. Raises TypeError and ValueError for one that is refused.

    `is_in_uri`: the storage is a URI, such as a bucket's, and so is that of the checkpoint.
    """
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"checkpoint_dir_name must be text, not {type(name).__name__}")
    path = posixpath.normpath(os.fspath(name))
    if path.startswith(("/", "../")) or path in {".", ".."}:
        raise ValueError(f"checkpoint_dir_name must name a directory within the folder of the trial, not {path!r}")
    if any(len(os.fsencode(part)) > MAX_BYTES for part in path.split("/")):
        raise ValueError(f"checkpoint_dir_name may have {MAX_BYTES} bytes, and this one is longer: {path[:40]!r}…")
    refused = "".join(dict.fromkeys(one for one in path if one not in LITERAL_IN_URI)) if is_in_uri else ""
    if refused:
        raise ValueError(
            f"checkpoint_dir_name {path!r} has {refused!r}: the storage is a URI, in which the checkpoint would not be "
            "found again; use letters, digits and any of -._~!$&'()*+,;=:@"
        )
    return path
