"""Takes secrets out of what is logged: a library's error may quote a header, or a URL with a password."""

import re

from trainer.process_log.context import log_context

MASK = "***"

USER_OF_URL = re.compile(r"//(?:[^/@\s:]*:[^@\s]*|[^/@\s]*)@")
"""The user and the password of a URL. A password may have a slash."""

PATTERNS = (
    (USER_OF_URL, f"//{MASK}@"),
    (
        re.compile(r"([?&][\w.-]*(?:token|password|secret|signature|credential|key))=[^&\s'\"]+", re.IGNORECASE),
        rf"\1={MASK}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[^\s'\",;)]+", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\bpl_[\w-]{20,}"), MASK),  # access tokens
)
"""What is a secret by its form."""


def redacted(text: str) -> str:
    """The text without secrets: those of a known form, the token of the request at hand, and those of the process."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    if credential := log_context.credential:
        text = text.replace(credential, MASK)
    return log_context.mask(text)
