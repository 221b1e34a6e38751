"""Numbers that other languages, and YAML 1.1, spell in ways that JSON does not have."""

import re

from search.mistakes import MAX_SHOWN

_DECIMAL = re.compile(r"([-+]?)([0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_BASES = {"0x": 16, "0o": 8, "0b": 2}


def as_json_number(text: str) -> str | None:
    """`1_000` as 1000, `0x1F` as 31, `0777` as 511, `1:30` as 90, `.5` as 0.5; None for what is no number."""
    text = text.strip().replace("_", "")
    if len(text) > MAX_SHOWN:
        return None
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("+-")
    if re.fullmatch(r"0[xob][0-9A-Fa-f]+", digits):
        return _in_base(sign, digits[2:], _BASES[digits[:2]])
    if re.fullmatch(r"0[0-7]+", digits):
        return _in_base(sign, digits, 8)
    if re.fullmatch(r"[0-9]+(?::[0-5]?[0-9])+", digits):
        return f"{sign}{_from_base_60(digits)}"
    return _decimal(text)


def _in_base(sign: str, digits: str, base: int) -> str | None:
    try:
        return f"{sign}{int(digits, base)}"
    except ValueError:
        return None


def _from_base_60(digits: str) -> int:
    total = 0
    for part in digits.split(":"):
        total = total * 60 + int(part)
    return total


def _decimal(text: str) -> str | None:
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[2] or (match[3] or ".") != "."):
        return None
    sign = "-" if match[1] == "-" else ""
    fraction = "" if match[3] in {None, "."} else match[3]
    return f"{sign}{match[2].lstrip('0') or '0'}{fraction}{match[4] or ''}"
