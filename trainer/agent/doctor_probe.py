"""What each node of a Ray cluster reaches: `python -m trainer.agent.doctor_probe RAY_ADDRESS`, for `paceline doctor`.

Its input is JSON: `{"services": [URL, …], "storage": URI or null}`. Its output is JSON: the nodes, each with its
address, its clock and versions, why each service does not answer there (null: it does), and why the storage cannot be
written there.
"""

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import ray
import requests

from trainer.agent.cluster import ClusterUnreachable, connect
from trainer.agent.settings import BadSetting, trusted_certificates
from trainer.agent.storage_probe import write_error
from trainer.client.session import service_session
from trainer.process_log.foreign_answers import certificate_problem
from trainer.ray_train.node_call import run_on_node

SERVICE_SECONDS = 5.0
NAMESPACE = "paceline-doctor"
PACKAGES = ("ray", "torch")


@dataclass(frozen=True)
class NodeFacts:
    """What a node sees: its own clock and versions, and what it reaches."""

    seconds: float
    python: str
    packages: dict[str, str | None]
    services: dict[str, str | None]
    storage_error: str | None


@dataclass(frozen=True)
class NodeAnswer:
    """`error` is why the node did not answer. `clock_ahead_seconds` is against the machine that asks."""

    address: str
    facts: NodeFacts | None = None
    clock_ahead_seconds: float = 0.0
    error: str | None = None


def main(ray_address: str) -> int:
    asked = json.load(sys.stdin)
    try:
        certificates = trusted_certificates(os.environ, asked["services"])
        connect(ray_address, NAMESPACE)
    except (BadSetting, ClusterUnreachable) as error:
        json.dump({"error": str(error), "nodes": []}, sys.stdout)
        return 1
    answers = [
        _ask_node(node, asked["services"], certificates, asked["storage"]) for node in ray.nodes() if node["Alive"]
    ]
    json.dump({"error": None, "nodes": [asdict(one) for one in answers]}, sys.stdout)
    return 0


def _ask_node(node: dict[str, str], services: list[str], certificates: str | None, storage: str | None) -> NodeAnswer:
    address = node["NodeManagerAddress"]
    before = time.time()
    try:
        facts = run_on_node(node["NodeID"], _facts_of_this_node, services, certificates, storage, node["NodeID"])
    except ray.exceptions.RayError as error:
        return NodeAnswer(address, error=f"{type(error).__name__}: {error}".partition("\n")[0])
    # The node read its clock between the two readings here; what is outside of them is skew.
    ahead = max(0.0, facts.seconds - time.time()) + min(0.0, facts.seconds - before)
    return NodeAnswer(address, facts, ahead)


def _facts_of_this_node(services: list[str], certificates: str | None, storage: str | None, node: str) -> NodeFacts:
    """Runs on the node."""
    return NodeFacts(
        seconds=time.time(),
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        services={url: _service_error(url, certificates) for url in services},
        storage_error=None if storage is None else write_error(storage, f".paceline-doctor-{node}"),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _service_error(url: str, certificates: str | None) -> str | None:
    session = service_session(certificates)
    try:
        session.get(f"{url.rstrip('/')}/healthz", timeout=SERVICE_SECONDS).raise_for_status()
    except requests.RequestException as error:
        return certificate_problem(url, error) or f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
