"""Why a certificate was not trusted, with what helps against it."""

import ssl

import pytest

from trainer.process_log.foreign_answers import certificate_problem

URL = "https://paceline.example"


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("unable to get local issuer certificate", "set SSL_CERT_FILE"),
        ("self-signed certificate in certificate chain", "set SSL_CERT_FILE"),
        ("certificate has expired", "it has to be renewed"),
        ("certificate is not yet valid", "the clock of this machine is wrong"),
        ("Hostname mismatch, certificate is not valid for 'paceline.example'.", "use an address whose name"),
        ("IP address mismatch, certificate is not valid for '127.0.0.1'.", "use an address whose name"),
    ],
)
def test_each_cause_has_the_advice_that_helps(cause: str, advice: str) -> None:
    error = ssl.SSLError(f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {cause} (_ssl.c:1006)")
    problem = certificate_problem(URL, error)
    assert problem
    assert problem.startswith(f"the certificate at {URL} cannot be verified ({cause.rstrip('.')}); ")
    assert advice in problem
    assert ("SSL_CERT_FILE" in problem) == ("SSL_CERT_FILE" in advice)


def test_another_cause_is_named_without_advice() -> None:
    error = ssl.SSLError(
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate revoked (_ssl.c:1006)"
    )
    expected = f"the certificate at {URL} cannot be verified (certificate revoked)"
    assert certificate_problem(URL, error) == expected
