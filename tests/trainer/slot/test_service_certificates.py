"""A slot calls a service behind TLS, with the certificates that its agent has."""

from pathlib import Path

import pytest

from tests.tls import authority
from tests.trainer.conftest import USER_CODE
from tests.trainer.fake_service import FakeService
from tests.trainer.slot.conftest import SCALING
from trainer.client.addresses import ServiceAddresses

pytestmark = [pytest.mark.slow, pytest.mark.ray]


@pytest.mark.usefixtures("alone")  # for Ray
def test_a_slot_trusts_what_its_agent_trusts(tmp_path: Path, record: Path) -> None:
    import ray  # noqa: PLC0415 - heavy

    from trainer.agent.cluster import start_slot  # noqa: PLC0415 - heavy

    own, service = authority(tmp_path / "own"), FakeService(str(tmp_path))
    own.serve(service.server)
    addresses = ServiceAddresses(service.url.replace("http:", "https:"), own.file.read_text())
    with service.serving():
        package = service.add_package(USER_CODE.read_text())
        config = {"record": str(record), "steps": 2}
        trial = service.add_trial({"entrypoint": "train:train_fn", "package": package, "scaling": SCALING}, config)
        _, slot = start_slot("tls-", None, addresses, {})
        assert ray.get(slot.run.remote(service.assign(trial), "key", SCALING))
        assert service.finished(trial).outcome == "completed"
        ray.kill(slot)
