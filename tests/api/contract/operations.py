"""The operations that openapi.json has, with the names of real things in their paths."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.conftest import Api, Held, a_spec

LEASED = "leaseToken"


@dataclass(frozen=True)
class Operation:
    """`path` has no placeholders; `facts` are what openapi.json says about the operation."""

    method: str
    path: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def id(self) -> str:
        return str(self.facts["operationId"])

    @property
    def schemes(self) -> set[str]:
        return {name for one in self.facts.get("security", []) for name in one}

    @property
    def query_names(self) -> set[str]:
        return {one["name"] for one in self.facts.get("parameters", []) if one["in"] == "query"}

    @property
    def header_names(self) -> set[str]:
        return {one["name"] for one in self.facts.get("parameters", []) if one["in"] == "header"}

    @property
    def statuses(self) -> set[int]:
        return {int(status) for status in self.facts["responses"]}


def operations(document: dict[str, Any], names: dict[str, str]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, facts in methods.items():
            yield Operation(method.upper(), path.format_map(names), facts)


def some_names(service: Api) -> tuple[dict[str, str], Held]:
    """Names for all placeholders: an experiment, its trial, which the test runs, its checkpoint, and more."""
    package = service.post("/v1/packages?filename=train.py", 201, content=b"def train_fn(): ...\n")["id"]
    service.claim("an-agent", 204)
    experiment = service.create(**a_spec())["name"]
    held = service.ask(experiment)
    assert held
    held.report(accuracy=0.5, checkpoint="/saved")
    names = {"experiment": experiment, "trial": held.trial, "package": package, "name": "an-agent", "step": "1"}
    return names, held


UNKNOWN = {
    "experiment": "nothing",
    "trial": "t-000000000000",
    "package": f"sha256:{'0' * 64}",
    "name": "no-agent",
    "step": "9",
}
