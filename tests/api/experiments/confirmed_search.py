"""A search whose winners are confirmed, in the hands of a test."""

from typing import Any

from tests.conftest import Api, Held

CONFIRM = {"top": 2, "seeds": 3}
SEARCHED = [0.5, 0.9, 0.7, 0.8]


def started(service: Api, **changes: Any) -> str:
    spec = {"confirm": CONFIRM, "limits": {"max_trials": 10, "parallelism": 10}} | changes
    return str(service.create(**spec)["name"])


def asked(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def ended(held: Held, value: float) -> None:
    held.report(accuracy=value)
    held.finish()


def searched(service: Api, name: str, values: list[float] = SEARCHED) -> None:
    for value in values:
        ended(asked(service, name), value)


def confirmed(service: Api, name: str, by_seed: dict[int, list[float]]) -> None:
    """Run all confirmations. `by_seed`: the values by the confirmed trial, in the order of the seeds."""
    for _ in range(sum(map(len, by_seed.values()))):
        held = asked(service, name)
        shown = held.shown()
        ended(held, by_seed[shown["confirms"]][shown["seed"] - 1])


def kinds(service: Api, name: str, kind: str) -> list[dict[str, Any]]:
    return [one["data"] for one in service.events(name) if one["kind"] == kind]


def trials(service: Api, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/experiments/{name}/trials", params={"limit": 1000})["items"]
    return found


def confirmations(service: Api, name: str) -> list[dict[str, Any]]:
    return [one for one in trials(service, name) if one["source"] == "confirmation"]


def shown(service: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/v1/experiments/{name}")
    return found


def best(service: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/v1/experiments/{name}/best")
    return found


def best_or_none(service: Api, name: str) -> Any:
    response = service.http.get(f"/v1/experiments/{name}/best")
    return response.json() if response.status_code == 200 else None
