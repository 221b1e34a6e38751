"""How log lines and messages of all processes name what answers in the service's place, as a proxy does."""

import re

IS_IT_A_PROXY = "is PACELINE_URL right, or is a proxy in between?"
NOT_FOLLOWED = "the redirection is not followed: set PACELINE_URL to {}"
"""Following would send the access token to an address that another program chose, and turn most POSTs into GETs."""
ITS_OWN = "the address at which the service itself answers"

API_CALL = re.compile(r"/(v1/.*|healthz|readyz)$")
"""The end of a URL, after the service's address."""

EXCERPT = 200
"""In characters."""

NOT_VERIFIED = re.compile(r"certificate verify failed: ([^(]*[^(\s.])")
"""In the messages of OpenSSL, which libraries quote."""

TRUST_IT = "if it is right, set SSL_CERT_FILE to a file with the certificate of the authority that has issued it (PEM)"
CERTIFICATE_ADVICE = {
    "issuer certificate": TRUST_IT,
    "self-signed": TRUST_IT,
    "self signed": TRUST_IT,
    "unable to verify the first certificate": TRUST_IT,
    "expired": "it has to be renewed there, or the clock of this machine is wrong",
    "not yet valid": "the clock of this machine is wrong, or it is to be used later only",
    "mismatch": "use an address whose name or IP address is in the certificate, or have it issued for this one",
}
"""What helps, by a part of OpenSSL's message."""


def foreign_answer(url: str, status: int, location: str | None, body: str) -> str:
    """`url`: without a password. `location`: where a redirection leads to."""
    to = f", a redirection to {location}," if location else ""
    advice = NOT_FOLLOWED.format(_moved_to(url, location) or ITS_OWN) if location else IS_IT_A_PROXY
    answered = f"{url} answered {status}{to} without a body of Paceline's; {advice}"
    return f"{answered} {' '.join(body[:EXCERPT].split())}".rstrip()


def _moved_to(url: str, location: str) -> str | None:
    """The service's address by a redirection that leads to the same call elsewhere, as from http to https."""
    call = API_CALL.search(url)
    if call is None or location == url or "://" not in location or not location.endswith(call[0]):
        return None
    return location.removesuffix(call[0])


def certificate_problem(url: str, error: Exception) -> str | None:
    """Why the other side was not taken for the service; None for an error of another kind. `url`: as above."""
    found = NOT_VERIFIED.search(str(error))
    if found is None:
        return None
    why = found[1]
    advice = next((advice for cause, advice in CERTIFICATE_ADVICE.items() if cause in why.lower()), "")
    return f"the certificate at {url} cannot be verified ({why})" + (f"; {advice}" if advice else "")
