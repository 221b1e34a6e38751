"""How many names and values a JSON body has, counted before it is read: reading takes time for each of them.

A body of 16 MB can have millions, for which Python's parser and pydantic hold the interpreter for minutes.
"""

import json
from typing import Any

from service.errors import BadRequest, TooLarge
from service.specification.unique_names import object_of_unique_names

MAX_PARTS = 100_000
"""Names and values in a message. A report with a hundred metrics has 200."""


_DECODER = json.JSONDecoder(object_pairs_hook=object_of_unique_names)  # `json.loads` would make one for each call


def read_json(body: bytes) -> Any:
    """By the `json` module, because pydantic's own parser refuses lone surrogates. Raises BadRequest, Invalid."""
    try:
        return _DECODER.decode(body.decode("utf-8-sig", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body cannot be read as JSON: {error}") from error


def check_parts(body: bytes) -> int:
    """Return about how many names and values there are, at most four for each that there is. Raises TooLarge."""
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 2 * MAX_PARTS)
    outside_texts = b"".join(pieces[::2])
    parts = sum(outside_texts.count(mark) for mark in (b",", b":", b"[", b"{"))
    if parts > MAX_PARTS or len(pieces) > 2 * MAX_PARTS:
        raise TooLarge(f"the body of this call may have at most {MAX_PARTS} names and values", max_parts=MAX_PARTS)
    return parts
