"""How log lines and messages of all processes name an answer that is not the service's own, as of a proxy."""

IS_IT_A_PROXY = "is PACELINE_URL right, or is a proxy in between?"
NOT_FOLLOWED = "the redirection is not followed: set PACELINE_URL to the address at which the service itself answers"

EXCERPT = 200
"""In characters."""


def foreign_answer(url: str, status: int, location: str | None, body: str) -> str:
    """`url`: without a password. `location`: where a redirection leads to."""
    to, advice = (f", a redirection to {location},", NOT_FOLLOWED) if location else ("", IS_IT_A_PROXY)
    answered = f"{url} answered {status}{to} without a body of Paceline's; {advice}"
    return f"{answered} {' '.join(body[:EXCERPT].split())}".rstrip()
