"""Checks of the nodes of a Ray cluster. Ray is used in a process of its own, which only the trainer knows."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from service.cli.doctor.check import Check, CheckState, failed, ok, warning
from service.cli.doctor.service_checks import STORAGE_ADVICE, describe_skew
from service.module_command import module_command

DOCTOR_PROBE = "trainer.agent.doctor_probe"
TOTAL_SECONDS = 300.0

Json = dict[str, Any]


class NoAnswer(Exception):
    """Why the nodes could not be asked."""


def check_cluster(ray_address: str, services: Sequence[str], storage: str | None) -> Iterator[Check]:
    """What each node reaches of what its workers will need."""
    try:
        answer = ask_nodes(ray_address, services, storage)
    except NoAnswer as error:
        yield failed("Ray", str(error), "see `ray status`")
        return
    if answer["error"]:
        yield failed("Ray", answer["error"], "start the cluster, or see docs/guides/ray-cluster.md")
    for node in answer["nodes"]:
        yield from _node(node, answer["nodes"][0])
    if storage is None and answer["nodes"]:
        advice = "say where it is: --storage, as the service's PACELINE_STORAGE"
        yield warning("storage", "not checked from the nodes", advice)


def ask_nodes(ray_address: str, services: Sequence[str], storage: str | None) -> Json:
    """The output of `trainer.agent.doctor_probe`. Raises NoAnswer."""
    command = module_command(DOCTOR_PROBE, ray_address, options=("-W", "ignore"))
    asked = json.dumps({"services": list(services), "storage": storage})
    try:
        ended = subprocess.run(  # noqa: S603 - our own module
            command, input=asked, capture_output=True, text=True, timeout=TOTAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"its nodes did not answer within {TOTAL_SECONDS:g} s") from error
    try:
        answer: Json = json.loads(ended.stdout)
    except ValueError as error:
        last = ended.stderr.strip().rpartition("\n")[2]
        raise NoAnswer(f"the check ended with exit code {ended.returncode}: {last}") from error
    return answer


def _node(node: Json, first: Json) -> Iterator[Check]:
    subject = f"node {node['address']}"
    if node["error"]:
        yield failed(subject, node["error"], "see `ray status` and the node's log")
        return
    facts = node["facts"]
    problems = [
        *_unreachable(subject, facts),
        *_unlike(subject, facts, first),
        describe_skew(subject, node["clock_ahead_seconds"], "its"),
    ]
    found = [one for one in problems if one.state is not CheckState.OK]
    torch = facts["packages"]["torch"] or "none"
    versions = f"Python {facts['python']}, Ray {facts['packages']['ray']}, torch {torch}"
    yield from found or [ok(subject, f"reaches all that it needs; {versions}")]


def _unreachable(subject: str, facts: Json) -> Iterator[Check]:
    for url, error in facts["services"].items():
        if error:
            advice = "give agents and services an address that all nodes reach: PACELINE_URL, PACELINE_ADVERTISED_URL"
            yield failed(subject, f"{url} does not answer there: {error}", advice)
    if facts["storage_error"]:
        yield failed(subject, facts["storage_error"], STORAGE_ADVICE)


def _unlike(subject: str, facts: Json, first: Json) -> Iterator[Check]:
    other = first["facts"]
    for name in ("python", "packages"):
        if other is not None and facts[name] != other[name]:
            found = f"{name}: {facts[name]}, but {other[name]} on node {first['address']}"
            yield warning(subject, found, "install the same versions on all nodes")
