"""The short check of plain calls and the whole check of cross-origin calls agree."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.api.http.security.cross_origin import CrossOriginProtection
from service.hosts import HostPattern
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database

HOSTS = [b"127.0.0.1", b"localhost:8000", b"paceline.example", b"evil.test", b"10.0.0.7:8000", b"", b"[::1]", b"\xff"]
TYPES = [b"application/json", b"application/json; charset=utf-8", b"text/plain", b"application/yaml", b"Text/Plain"]
ORIGINS = [b"http://127.0.0.1", b"http://evil.test", b"null", b""]
SITES = [b"same-origin", b"cross-site", b"none"]
FETCH = [b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"]

headers = st.lists(
    st.one_of(
        st.tuples(st.just(b"host"), st.sampled_from(HOSTS)),
        st.tuples(st.just(b"content-type"), st.sampled_from(TYPES)),
        st.tuples(st.just(b"origin"), st.sampled_from(ORIGINS)),
        st.tuples(st.sampled_from(FETCH), st.sampled_from(SITES)),
        st.tuples(st.just(b"content-length"), st.sampled_from([b"0", b"7"])),
        st.tuples(st.just(b"transfer-encoding"), st.just(b"chunked")),
        st.tuples(st.sampled_from([b"authorization", b"accept", b"x-forwarded-host"]), st.binary(max_size=20)),
    ),
    max_size=6,
)
scopes = st.fixed_dictionaries(
    {
        "type": st.just("http"),
        "method": st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
        "http_version": st.sampled_from(["1.0", "1.1"]),
        "server": st.sampled_from([None, ("127.0.0.1", 8000), ("10.0.0.7", 8000)]),
        "headers": headers.map(lambda some: [(b"host", b"127.0.0.1"), *some]) | headers,
    }
)


async def _nothing(*_: Any) -> None:
    """An application that is not reached."""


def protection(**changes: Any) -> CrossOriginProtection:
    settings = Settings(data_dir=Path("unused"), database_url="sqlite:///unused.db", storage="unused", **changes)
    return CrossOriginProtection(_nothing, Context(settings, Database(settings.database_url)))


PROTECTIONS = [
    protection(),
    protection(hosts=(HostPattern.parse("paceline.example"),)),
    protection(require_tokens=True),
    protection(host="10.0.0.7", insecure=True),
]


@given(scopes, st.sampled_from(PROTECTIONS))
def test_the_whole_check_accepts_every_plain_call(scope: dict[str, Any], protection: CrossOriginProtection) -> None:
    if protection._is_plain_call(scope):
        assert protection._refusal(scope) is None


def test_a_report_is_a_plain_call() -> None:
    """Otherwise the test above would say nothing."""
    names = {"host": b"127.0.0.1:8000", "content-type": b"application/json", "authorization": b"Bearer x"}
    scope = {"headers": [(name.encode(), value) for name, value in names.items()], "method": "POST", "type": "http"}
    assert protection()._is_plain_call(scope)
