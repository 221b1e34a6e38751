"""A web page that the user visits can neither call the service nor read from it; curl, agents and slots can."""

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from service.domain.roles import Role
from service.hosts import HostPattern
from service.operations.tokens import create_token, remove_token
from service.settings import Settings
from service.store.sql.database import Database
from tests.conftest import Api, a_spec, changed, running
from tests.timeouts import PATIENCE_SECONDS

# What is refused here is refused before a database is asked.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

JSON = {"Content-Type": "application/json"}
LEASE_CALL = {"reports": [{"sequence": 0, "metrics": {"accuracy": 1}}]}


@pytest.fixture
def named(settings: Settings) -> Iterator[Api]:
    """A service with names of its own."""
    hosts = tuple(map(HostPattern.parse, ["paceline.example", "tuning.example:8443", "*.lab.example"]))
    with running(changed(settings, hosts=hosts)) as service:
        yield service


@pytest.fixture
def token(settings: Settings) -> dict[str, str]:
    database = Database(settings.database_url)
    token = create_token(database, "alice", Role.ADMIN)
    database.close()
    return {"Authorization": f"Bearer {token}"}


def port_of(service: Api) -> int:
    port = service.http.base_url.port
    assert port
    return port


def exchange(service: Api, request: str) -> tuple[int, str]:
    """Send these bytes; return the answer's status and all of its text."""
    with socket.create_connection(("127.0.0.1", port_of(service)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode("latin-1"))
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(answer.split()[1]), answer


def with_host(service: Api, host: str, path: str = "/v1/experiments") -> tuple[int, str]:
    return exchange(service, f"GET {path} HTTP/1.1\nHost: {host}\nConnection: close\n\n")


def create(service: Api, headers: Mapping[str, str], **body: Any) -> httpx.Response:
    return service.http.post("/v1/experiments", headers=dict(headers), **(body or {"json": a_spec()}))


def count(service: Api) -> int:
    return len(service.get("/v1/experiments")["items"])


OUR_HOSTS = [
    "localhost",
    "localhost:9",
    "LOCALHOST:8000",
    "LocalHost.",
    "localhost.:8000",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.8.9.1",
    "[::1]",
    "[::1]:8000",
    "[0:0:0:0:0:0:0:1]:80",
    "[::ffff:127.0.0.1]:8000",
    "127.0.0.1:",
]
FOREIGN_HOSTS = [
    "evil.test",
    "evil.test:8000",
    "127.0.0.1.evil.test",
    "localhost.evil.test",
    "evil-localhost",
    "127.0.0.1.nip.io:8000",
    "localhost..",
    ".localhost",
    "10.0.0.1",
    "0.0.0.0:8000",
    "203.0.113.7:8000",
    "[::]:8000",
    "[2001:db8::1]",
    "2130706433",
    "%6cocalhost",
    "127.0.0.1%2eevil.test",
    "",
    ":8000",
]
UNREADABLE_HOSTS = [
    "localhost@evil.test",
    "evil.test@localhost",
    "user:secret@127.0.0.1:8000",
    "127.0.0.1:8000:80",
    "127.0.0.1:x",
    "::1",
    "[::1",
    "[localhost]",
    "[::1]evil.test",
    "localhost/evil",
    "localhost, evil.test",
    "localhost evil.test",
    "localhost#",
    "l\xf6calhost",
    "http://localhost",
]


@pytest.mark.parametrize("host", OUR_HOSTS)
def test_loopback_names_and_addresses_are_ours_on_any_port(service: Api, host: str) -> None:
    assert with_host(service, host)[0] == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_reads_nothing(service: Api, host: str) -> None:
    for path in ("/v1/experiments", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/no-such-page"):
        status, answer = with_host(service, host, path)
        assert status == 403
        assert "application/problem+json" in answer
        assert "foreign-host" in answer
        assert "PACELINE_HOSTS" in answer


@pytest.mark.parametrize("host", UNREADABLE_HOSTS)
def test_a_malformed_host_is_a_bad_request(service: Api, host: str) -> None:
    status, answer = with_host(service, host)
    assert (status, "application/problem+json" in answer) == (400, True)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_checks_the_host(service: Api, method: str) -> None:
    status, answer = exchange(service, f"{method} /v1/experiments HTTP/1.1\nHost: evil.test\nConnection: close\n\n")
    assert status == 403
    assert "access-control" not in answer.lower()


def test_a_request_names_its_host_exactly_once(service: Api) -> None:
    path = "GET /v1/experiments"
    ours, foreign = "Host: 127.0.0.1\n", "Host: evil.test\n"
    assert exchange(service, f"{path} HTTP/1.1\nConnection: close\n\n")[0] == 400
    assert exchange(service, f"{path} HTTP/1.0\n\n")[0] == 200
    for pair in (ours + foreign, foreign + ours, ours + ours):
        for version in ("1.0", "1.1"):
            assert exchange(service, f"{path} HTTP/{version}\n{pair}Connection: close\n\n")[0] == 400
    assert exchange(service, f"{path} HTTP/1.0\n{foreign}\n")[0] == 403


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.test/v1/experiments", "127.0.0.1", 403),
        ("http://127.0.0.1@evil.test/v1/experiments", "127.0.0.1", 403),
        ("HTTP://evil.test:8000/v1/experiments?limit=1", "localhost:8000", 403),
        ("http://localhost/v1/experiments", "evil.test", 200),
        ("http://[::1]:8000/v1/experiments", "evil.test", 200),
        ("http://127.0.0.1/v1/experiments", "127.0.0.1", 200),
    ],
)
def test_an_absolute_target_has_the_host(service: Api, target: str, host: str, status: int) -> None:
    assert exchange(service, f"GET {target} HTTP/1.1\nHost: {host}\nConnection: close\n\n")[0] == status
    assert exchange(service, f"GET {target} HTTP/1.1\nConnection: close\n\n")[0] == 400


def test_a_forwarded_host_changes_nothing(service: Api) -> None:
    forwarded = {"X-Forwarded-Host": "127.0.0.1", "Forwarded": "host=127.0.0.1"}
    assert service.http.get("/v1/experiments", headers={"Host": "evil.test", **forwarded}).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("paceline.example", 200),
        ("PACELINE.example.:8000", 200),
        ("tuning.example:8443", 200),
        ("tuning.example", 403),
        ("tuning.example:80", 403),
        ("a.lab.example:1", 200),
        ("lab.example", 403),
        ("alab.example", 403),
        ("other.paceline.example", 403),
        ("127.0.0.1:8000", 200),
    ],
)
def test_a_setting_names_more_hosts(named: Api, host: str, status: int) -> None:
    assert with_host(named, host)[0] == status


def test_the_bound_address_is_ours(settings: Settings) -> None:
    with running(changed(settings, host="gpu-box.example", insecure=True)) as service:
        assert with_host(service, "gpu-box.example:8000")[0] == 200
        assert with_host(service, "evil.test")[0] == 403


def test_a_wildcard_host_is_no_check(settings: Settings) -> None:
    with running(changed(settings, hosts=(HostPattern.parse("*"),))) as service:
        assert with_host(service, "anything.example:1")[0] == 200


def browsers_own_headers(service: Api) -> list[dict[str, str]]:
    """What a browser adds to a call from the service's own pages, or from the address bar."""
    here = f"http://127.0.0.1:{port_of(service)}"
    return [{"Origin": here, "Sec-Fetch-Site": "same-origin"}, {"Origin": here}, {"Sec-Fetch-Site": "none"}]


FOREIGN_PAGES = [
    {"Origin": "http://evil.test"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:5000"},
    {"Origin": "http://localhost"},
    {"Origin": ""},
    {"Origin": "https://evil.test:443"},
    {"Origin": "http://127.0.0.1@evil.test"},
    {"Origin": "file://"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "Cross-Site"},
    {"Sec-Fetch-Site": "later"},
    {"Origin": "http://evil.test", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("page", FOREIGN_PAGES, ids=str)
def test_a_page_of_another_origin_changes_nothing(service: Api, page: dict[str, str]) -> None:
    existing = service.create()["name"]
    bodies: list[dict[str, Any]] = [
        {"json": a_spec()},
        {"content": b"name: x", "headers": {"Content-Type": "application/yaml"}},
        {"content": b"{}", "headers": {"Content-Type": "text/plain"}},
        {"data": {"spec": "{}"}},
        {"files": {"spec": ("e.yaml", b"name: x")}},
        {"content": b"{}"},
        {},
    ]
    before = service.get(f"/v1/experiments/{existing}")
    for body in bodies:
        headers = body.pop("headers", {}) | page
        for method, path in [
            ("POST", "/v1/experiments"),
            ("POST", "/v1/packages"),
            ("POST", f"/v1/experiments/{existing}/cancel"),
            ("POST", f"/v1/experiments/{existing}/ask"),
            ("PATCH", f"/v1/experiments/{existing}"),
            ("POST", "/v1/spaces/preview"),
            ("DELETE", f"/v1/experiments/{existing}"),
            ("POST", "/v1/agents/here/claim"),
            ("POST", "/v1/trials/t-1/reports"),
        ]:
            answer = service.http.request(method, path, headers=headers, **body)
            assert answer.status_code in {403, 415}, f"{method} {path} {headers}: {answer.text}"
            assert answer.headers["content-type"] == "application/problem+json"
            assert not [name for name in answer.headers if name.startswith("access-control")]
    assert count(service) == 1
    assert service.get(f"/v1/experiments/{existing}") == before


def test_two_origins_are_not_one(service: Api) -> None:
    here = f"http://127.0.0.1:{port_of(service)}"
    answer = service.http.post(
        "/v1/experiments", json=a_spec(), headers=[("Origin", here), ("Origin", "http://evil.test")]
    )
    assert answer.status_code == 403


def test_the_services_own_pages_may_call_it(service: Api) -> None:
    for headers in browsers_own_headers(service):
        assert create(service, headers).status_code == 201


def test_a_page_behind_a_proxy_with_tls_may_call_it(named: Api) -> None:
    ours = {"Host": "paceline.example", "Origin": "https://paceline.example", "Sec-Fetch-Site": "same-origin"}
    assert create(named, ours).status_code == 201
    assert create(named, ours | {"Host": "paceline.example:443"}).status_code == 201
    assert create(named, ours | {"Origin": "https://paceline.example:8443"}).status_code == 403


def test_a_page_may_lead_the_user_to_the_service(service: Api) -> None:
    """A link on another site is a GET, whose answer the page cannot read."""
    assert service.http.get("/docs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_no_answer_allows_another_origin_to_read(service: Api) -> None:
    preflight = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}
    for method, headers in [("OPTIONS", preflight), ("GET", {"Origin": "http://evil.test"})]:
        answer = service.http.request(method, "/v1/experiments", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/v1/experiments", "/v1/trials/none/logs", "/docs/page.js", "/none", "/healthz"])
def test_no_page_of_another_origin_can_include_an_answer(service: Api, path: str) -> None:
    """A browser gives an answer to a page that names it as a script, without a call that needs CORS."""
    headers = service.http.get(path).headers
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "kind", ["text/plain", "Text/Plain; charset=utf-8", "text/plain;application/json", "text/plain;x=json"]
)
def test_plain_text_is_no_body_of_a_call(service: Api, kind: str) -> None:
    answer = create(service, {"Content-Type": kind}, json=a_spec())
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:paceline:error:unsupported-media-type")
    assert "application/json" in answer.json()["detail"]
    assert count(service) == 0


def test_a_browser_names_the_type_of_its_body(service: Api) -> None:
    untyped = {"content": b'{"name": "x"}'}
    for headers in browsers_own_headers(service):
        assert create(service, headers, **untyped).status_code == 415
    assert create(service, {}, **untyped).status_code == 422, "curl may leave it out"


@pytest.mark.parametrize(
    "kind", ["application/yaml", "application/json", "application/x-www-form-urlencoded", "multipart", None]
)
def test_the_documented_calls_of_curl_need_no_token(service: Api, kind: str | None) -> None:
    """`curl --data-binary` says that the body is a form, unless told otherwise."""
    spec = json.dumps(a_spec()).encode()
    if kind == "multipart":
        answer = create(service, {}, files={"spec": ("experiment.yaml", spec)})
    else:
        answer = create(service, {"Content-Type": kind} if kind else {}, content=spec)
    assert answer.status_code == 201, answer.text
    assert service.http.post(f"/v1/experiments/{answer.json()['name']}/stop").status_code == 200


@pytest.mark.parametrize(
    "foreign", [{"Host": "evil.test"}, {"Origin": "http://evil.test"}, {"Content-Type": "text/plain"}], ids=str
)
def test_a_valid_token_is_enough(service: Api, token: dict[str, str], foreign: dict[str, str]) -> None:
    wrong = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}]
    for headers in wrong:
        assert create(service, {**JSON, **headers, **foreign}).status_code in {403, 415}
    assert create(service, {**JSON, **token, **foreign}).status_code == 201


def test_a_call_that_its_token_alone_admits_may_do_no_more_than_the_token(settings: Settings, service: Api) -> None:
    """As behind a proxy on the same machine, which the service is reached through by another name."""
    foreign = {"Host": "paceline.example"}
    database = Database(settings.database_url)
    reader = {"Authorization": f"Bearer {create_token(database, 'reader', Role.READ)}"}
    database.close()
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    assert service.http.get(f"/v1/experiments/{name}", headers=reader | foreign).status_code == 200
    for headers, status in ((reader, 403), (held.headers, 401)):
        assert create(service, {**JSON, **headers, **foreign}).status_code == status
        assert service.http.post(f"/v1/experiments/{name}/pause", headers=headers | foreign).status_code == status
        assert service.http.delete(f"/v1/experiments/{name}", headers=headers | foreign).status_code == status
    assert service.get(f"/v1/experiments/{name}")["status"] == "running"


def test_a_stream_that_its_token_alone_admits_ends_with_the_token(
    settings: Settings, service: Api, token: dict[str, str]
) -> None:
    path = f"/v1/experiments/{service.create()['name']}/events"
    headers = token | {"Host": "paceline.example"}
    with service.http.stream("GET", path, headers=headers) as stream:
        assert stream.status_code == 200
        database = Database(settings.database_url)
        remove_token(database, "alice")
        database.close()
        assert "event: experiment.created" in "".join(stream.iter_text())


def test_a_holder_needs_only_its_lease(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    path, foreign = f"/v1/trials/{held.trial}/reports", {"Host": "paceline.example:8000"}
    assert service.http.post(path, json=LEASE_CALL, headers=held.headers | foreign).status_code == 200
    assert service.http.post(path, json=LEASE_CALL, headers=foreign).status_code == 403
    held.finish()
    late = service.http.post(path, json=LEASE_CALL, headers=held.headers | foreign)
    assert (late.status_code, late.json()["type"]) == (409, "urn:paceline:error:lease-lost")


def test_where_every_call_needs_a_token_the_token_decides(settings: Settings, token: dict[str, str]) -> None:
    with running(changed(settings, require_tokens=True)) as service:
        foreign = {"Host": "evil.test", "Origin": "http://evil.test"}
        assert service.http.get("/v1/experiments", headers=foreign).status_code == 401
        assert create(service, foreign).status_code == 401
        assert create(service, token | foreign).status_code == 201
        assert service.http.get("/healthz", headers={"Host": "10.0.0.9:8000"}).status_code == 200
