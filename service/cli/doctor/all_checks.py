"""All checks that can be made from here, in the order in which they matter."""

from collections.abc import Iterator, Sequence

from service.cli.argument_values import BadArgument
from service.cli.client.client import Client
from service.cli.doctor.check import Check, failed
from service.cli.doctor.cluster_checks import check_cluster
from service.cli.doctor.service_checks import check_service
from service.cli.doctor.settings_checks import check_settings
from service.cli.options.shared_options import access_token
from service.settings import BadSettings, storage_location


def run_checks(services: Sequence[str], ray_address: str | None, storage: str | None) -> Iterator[Check]:
    """Checks each service, the service's settings where they are set, and a Ray cluster's nodes if it is named."""
    for url in services:
        yield from _service(url)
    yield from check_settings()
    if ray_address is not None:
        yield from _cluster(ray_address, services, storage)


def _service(url: str) -> Iterator[Check]:
    try:
        client = Client(url, access_token())
    except BadArgument as error:
        yield failed("service", str(error), "correct or unset the one that is wrong")
        return
    with client:
        yield from check_service(client)


def _cluster(ray_address: str, services: Sequence[str], storage: str | None) -> Iterator[Check]:
    try:
        location = None if storage is None else storage_location(storage)
    except BadSettings as error:
        yield failed("storage", str(error), "see docs/reference/settings.md")
        return
    yield from check_cluster(ray_address, services, location)
