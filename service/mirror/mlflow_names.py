"""Names that MLflow accepts for metrics, parameters and tags: it has fewer characters for them."""

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from types import MappingProxyType

NAME_LENGTH = 250
HASH_LENGTH = 8
_FORBIDDEN = re.compile(r"[^\w\-. :/]")


def name(text: str) -> str:
    """Return `text` as a name of a metric, parameter or tag. MLflow rejects brackets, absolute paths and `..`."""
    legal = _FORBIDDEN.sub("_", text)[:NAME_LENGTH]
    is_unsafe_path = legal.startswith(("/", "..")) or posixpath.normpath(legal) != legal
    accepted = legal.replace("/", "_").replace("..", "_") if is_unsafe_path else legal
    return "_" if accepted in {"", "."} else accepted


def names(originals: Collection[str], known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the name in MLflow of each of the names, no two the same. Those that are `known` have theirs already.

    Where several would get the same name, those that MLflow would not accept as they are get a hash of the original.
    All others are as `name` says, so that a curve or column that is alone keeps the name that earlier versions have
    given it. None gets a known one.
    """
    new = [original for original in originals if original not in known]
    sharers = Counter(map(name, new))
    taken = set(known.values())

    def is_confused(original: str) -> bool:
        plain = name(original)
        return plain in taken or (sharers[plain] > 1 and plain != original)

    given = {original: _with_hash(original) if is_confused(original) else name(original) for original in new}
    return {original: known.get(original) or given[original] for original in originals}


def _with_hash(original: str) -> str:
    suffix = "_" + sha256(original.encode(errors="surrogatepass")).hexdigest()[:HASH_LENGTH]
    return name(original)[: NAME_LENGTH - len(suffix)] + suffix
