"""How log lines and messages of all processes name what answers in the service's place, as a proxy does."""

import re

IS_IT_A_PROXY = "is PACELINE_URL right, or is a proxy in between?"
NOT_FOLLOWED = "the redirection is not followed: set PACELINE_URL to the address at which the service itself answers"

EXCERPT = 200
"""In characters."""

NOT_VERIFIED = re.compile(r"certificate verify failed: ([^(]*[^(\s.])")
"""In the messages of OpenSSL, which libraries quote."""


def foreign_answer(url: str, status: int, location: str | None, body: str) -> str:
    """`url`: without a password. `location`: where a redirection leads to."""
    to, advice = (f", a redirection to {location},", NOT_FOLLOWED) if location else ("", IS_IT_A_PROXY)
    answered = f"{url} answered {status}{to} without a body of Paceline's; {advice}"
    return f"{answered} {' '.join(body[:EXCERPT].split())}".rstrip()


def certificate_problem(url: str, error: Exception) -> str | None:
    """Why the other side was not taken for the service; None for an error of another kind. `url`: as above."""
    found = NOT_VERIFIED.search(str(error))
    if found is None:
        return None
    advice = (
        "if it is right, set SSL_CERT_FILE to a file with the certificate of the authority that has issued it (PEM)"
    )
    return f"the certificate at {url} cannot be verified ({found[1]}); {advice}"
