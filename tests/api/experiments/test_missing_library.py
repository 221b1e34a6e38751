"""A service without torch: it refuses the sampler gp, never chooses it, and keeps stored experiments that name it."""

import sys

import pytest

from tests.conftest import Api, a_spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
GP = {"sampler": "gp", "seed": 7}
LACKING = "gp needs the library torch, which this service does not have"


def test_an_experiment_that_names_gp_is_refused(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    refused = service.post("/v1/experiments", 422, json=a_spec(search=GP))
    advice = "use tpe or auto, or have the library installed where the service runs"
    [mistake] = refused["errors"]
    assert mistake == {"path": "search.sampler", "message": f"{LACKING}: {advice}"}


@pytest.mark.parametrize("search", [{"sampler": "auto"}, "auto"])
def test_auto_chooses_tpe_and_says_why(service: Api, monkeypatch: pytest.MonkeyPatch, search: object) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    limits = {"max_trials": 9, "parallelism": 2}  # too few for early stopping, which gp learns nothing from
    chosen = service.create(search=search, limits=limits)["sampler"]
    assert chosen["name"] == "tpe"
    assert LACKING.removeprefix("gp ") in chosen["why"]


def test_a_stored_experiment_with_gp_waits_and_says_what_for(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials go on; another service may have the library, or get it."""
    name = service.create(search=GP, enqueue=[{"lr": 0.1}])["name"]
    monkeypatch.setitem(sys.modules, "torch", None)
    assert service.get(f"/v1/experiments/{name}")["waiting_for"] is None
    held = service.ask(name)
    assert held
    held.report(accuracy=0.5)
    held.finish(next=True)
    assert service.post(f"/v1/experiments/{name}/ask", 409)["detail"] == LACKING
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("running", None)
    assert shown["waiting_for"] == f"a library: {LACKING}"


def test_a_stored_experiment_with_gp_can_be_changed(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name = service.create(search=GP)["name"]
    monkeypatch.setitem(sys.modules, "torch", None)
    changed = service.call("PATCH", f"/v1/experiments/{name}", 200, json={"limits": {"parallelism": 3}})
    assert changed["spec"]["limits"]["parallelism"] == 3
    assert changed["spec"]["search"]["sampler"] == "gp"
