"""Takes secrets out of what is logged: a library's error may quote a header, or a URL with a password."""

import re

from trainer.process_log.context import log_context

MASK = "***"

UP_TO_AT_SIGN = re.compile(r"(?<![^@\s])[^@\s]+@")
"""From a blank or another at sign on, so that no part of a long text is read twice."""

USER_OF_URL = re.compile(r"//[^/@:]*[:@]")
"""Where the user and the password begin. A password may have a slash."""

HIDDEN_PARAMETER = r"(?i:[?&][\w.-]*(?:token|password|passwd|pwd|secret|signature|credentials?|key|auth))"
"""The name of a parameter in the query of a URL that says that its value is a secret. A part of a pattern."""

PATTERNS = (
    (re.compile(rf"({HIDDEN_PARAMETER})=[^&\s'\"]+"), rf"\1={MASK}"),
    (re.compile(r"\b(bearer|basic)\s+[^\s'\",;)]+", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\bpl_[\w-]{20,}"), MASK),  # access tokens
)
"""What is a secret by its form."""


def redacted(text: str) -> str:
    """The text without secrets: those of a known form, the token of the request at hand, and those of the process."""
    text = without_users(text, f"//{MASK}@")
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    if credential := log_context.credential:
        text = text.replace(credential, MASK)
    return log_context.mask(text)


def without_users(text: str, instead: str) -> str:
    """The text with `instead` for the user and the password in each URL, from `//` to the at sign."""

    def without_user(found: re.Match[str]) -> str:
        begin = USER_OF_URL.search(found[0])
        return f"{found[0][: begin.start()]}{instead}" if begin else found[0]

    return UP_TO_AT_SIGN.sub(without_user, text)
