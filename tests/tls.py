"""A certificate authority made for a test, and the certificate of a server that it has issued."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import HTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """`file` has its certificate. A server at 127.0.0.1 uses `server`."""

    file: Path
    server: ssl.SSLContext

    def serve(self, server: HTTPServer) -> None:
        """Have this server speak TLS, before its first call. A handshake is made by the thread of its connection."""
        server.socket = self.server.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)


def authority(directory: Path) -> Authority:
    directory.mkdir(parents=True, exist_ok=True)
    own_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = _certificate(directory.name, own_key, directory.name, own_key, x509.BasicConstraints(True, None))
    host = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    servers = _certificate("server", key, directory.name, own_key, host)
    pem = serialization.Encoding.PEM
    (directory / "authority.pem").write_bytes(own.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "server.pem").write_bytes(private + servers.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    return Authority(directory / "authority.pem", context)


def _certificate(name: str, key: Any, issuer: str, issuers_key: Any, extension: Any) -> x509.Certificate:
    now = datetime.now(UTC)
    unsigned = (
        x509.CertificateBuilder(_named(issuer), _named(name), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(extension, critical=False)
    )
    return unsigned.sign(issuers_key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
