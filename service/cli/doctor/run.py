"""All checks that can be made from here, in the order in which they matter."""

from collections.abc import Iterator, Sequence

from service.cli.client import Client
from service.cli.doctor.check import Check
from service.cli.doctor.cluster_checks import check_cluster
from service.cli.doctor.service_checks import check_service
from service.cli.doctor.settings_checks import check_settings
from service.cli.shared_options import access_token


def run_checks(services: Sequence[str], ray_address: str | None, storage: str | None) -> Iterator[Check]:
    """Of each service, of the service's settings where they are set, and of a Ray cluster's nodes if it is named."""
    for url in services:
        with Client(url, access_token()) as client:
            yield from check_service(client)
    yield from check_settings()
    if ray_address is not None:
        yield from check_cluster(ray_address, services, storage)
