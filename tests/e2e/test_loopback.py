"""What `paceline up` starts is there for this machine only, and not for the web pages that its user visits."""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address

import httpx
import psutil
import pytest

from tests.e2e.conftest import Stack

FOREIGN_HOSTS = ["evil.test", "10.evil.test", "192.168.evil.test:5000", "10.0.0.1", "127.0.0.1.evil.test:5000"]
SEARCH = "/api/2.0/mlflow/experiments/search"


def listening(stack: Stack) -> Iterator[tuple[str, str, int]]:
    """(process, address, port) of each TCP port, and of each UDP port that is not connected."""
    for process in stack.processes():
        for socket in process.net_connections(kind="inet"):
            if socket.status in {psutil.CONN_LISTEN, psutil.CONN_NONE} and not socket.raddr:
                yield process.name(), socket.laddr.ip, socket.laddr.port


def is_loopback(text: str) -> bool:
    address = ip_address(text)
    return ((isinstance(address, IPv6Address) and address.ipv4_mapped) or address).is_loopback


@pytest.mark.slow
@pytest.mark.ray
def test_every_port_is_on_loopback(stack: Stack) -> None:
    found = set(listening(stack))
    assert {"gcs_server", "raylet"} <= {name for name, _, _ in found}
    assert not [one for one in found if not is_loopback(one[1])]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_reaches_neither_mlflow_nor_the_service(stack: Stack, host: str) -> None:
    for url in (f"{stack.mlflow_url}{SEARCH}?max_results=1", f"{stack.url}/v1/experiments"):
        assert httpx.get(url).status_code == 200
        assert httpx.get(url, headers={"Host": host}).status_code == 403


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("origin", ["http://evil.test", "null"])
def test_a_page_of_another_site_changes_nothing_in_mlflow(stack: Stack, origin: str) -> None:
    url = f"{stack.mlflow_url}/api/2.0/mlflow/experiments/create"
    answer = httpx.post(url, content=b'{"name": "foreign"}', headers={"Origin": origin, "Content-Type": "text/plain"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
