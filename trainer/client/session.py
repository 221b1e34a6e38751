"""The HTTP session of agents and slots: no proxy between a cluster and its control plane, no netrc, and TLS."""

import ssl
from typing import Any

import requests
from requests.adapters import HTTPAdapter


def service_session(certificates: str | None) -> requests.Session:
    """`certificates`: PEM, of the authorities to trust; None: those that `requests` trusts by itself."""
    session = requests.Session()
    session.trust_env = False
    if certificates is not None:
        session.mount("https://", _Trusting(certificates))
    return session


class _Trusting(HTTPAdapter):
    """`requests` itself takes a path, which nodes of the cluster do not have."""

    def __init__(self, certificates: str) -> None:
        self._certificates = certificates
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        context = ssl.create_default_context(cadata=self._certificates)
        super().init_poolmanager(*args, **options, ssl_context=context)

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:  # noqa: ARG002
        """As the base class, without its own authorities, which would be trusted, too."""
        conn.cert_reqs = "CERT_REQUIRED"
