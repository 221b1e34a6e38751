"""Malformed requests get an answer that says what is wrong, and do not affect other callers."""

import json
from typing import Any

import pytest

from search.numbers_in_messages import counted
from tests.conftest import Api, Held, a_spec

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}
TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}


def held_of(service: Api, **changes: Any) -> Held:
    held = service.ask(service.create(**changes)["name"])
    assert held
    return held


def report(held: Held, metrics: str, sequence: int = 0, **more: str) -> Any:
    """A report whose JSON is written by hand."""
    facts = "".join(f', "{name}": {value}' for name, value in more.items())
    body = f'{{"reports": [{{"sequence": {sequence}, "metrics": {metrics}{facts}}}]}}'
    return held.api.http.post(f"/v1/trials/{held.trial}/reports", content=body, headers=held.headers | JSON)


def spec_with(part: str, value: str) -> str:
    """A spec's JSON with a value written by hand at `config.x`, `tags.x` …"""
    where, _, name = part.partition(".")
    return json.dumps(a_spec(**{where: {name: "HERE"} if name else "HERE"})).replace('"HERE"', value)


def all_reads_work(service: Api, experiment: str, trial: str) -> None:
    for path in ("/v1/experiments", "/v1/experiments?tag=team:vision", "/v1/agents", f"/v1/trials/{trial}",
                 f"/v1/trials/{trial}/reports", f"/v1/experiments/{experiment}/trials",
                 f"/v1/experiments/{experiment}/events?follow=false"):  # fmt: skip
        service.get(path)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("value", "report it first: the value of a trial is that of its last report"),
        ("state", "use outcome: completed, failed, or stopped (also for a pruned trial)"),
        ("eror", "did you mean error?"),
        ("x", "known here: outcome, error, phases, system_metrics, next"),
    ],
)
def test_an_unknown_field_of_a_body_is_answered_with_what_to_do(service: Api, name: str, advice: str) -> None:
    held = held_of(service)
    body = {"outcome": "completed", name: 1}
    refused = held.api.http.post(f"/v1/trials/{held.trial}/finish", json=body, headers=held.headers).json()
    assert refused["errors"] == [{"path": name, "message": f"unknown field; {advice}"}]


@pytest.mark.parametrize("metrics", [
    r'{"accuracy": 0.1, "note": "\ud800 \u0000"}', r'{"accuracy": 0.1, "\ud800\u0000": 1}',
    r'{"accuracy": "\ud800"}', '{"accuracy": 1' + "0" * 400 + "}", '{"accuracy": Infinity}',
    '{"accuracy": 0.1, "deep": ' + "[" * 900 + "]" * 900 + "}",
])  # fmt: skip
def test_odd_metrics_are_stored_in_a_readable_form(service: Api, metrics: str) -> None:
    held = held_of(service)
    assert report(held, metrics).status_code == 200
    assert len(service.get(f"/v1/trials/{held.trial}/reports")["items"]) == 1
    all_reads_work(service, held.assignment["experiment"], held.trial)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e300", "1e999", str(2**63), "1.5", "true", r'"\ud800"'])
def test_a_step_that_is_not_a_number_is_refused(service: Api, value: str) -> None:
    answer = report(held_of(service, step_metric="epoch"), f'{{"epoch": {value}, "accuracy": 1}}')
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:paceline:error:invalid")


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("reports", '{"reports": [{"sequence": 0, "metrics": {"accuracy": 1, "accuracy": 2}}]}', "accuracy"),
        ("reports", '{"reports": [], "reports": [{"sequence": 0}]}', "reports"),
        ("heartbeat", '{"wait_seconds": 0, "wait_seconds": 1}', "wait_seconds"),
        ("logs", '{"rank": 0, "offset": 0, "text": "a", "text": "b"}', "text"),
        ("finish", '{"outcome": "completed", "outcome": "failed"}', "outcome"),
        ("claim", '{"request_id": "a", "request_id": "b", "nodes": []}', "request_id"),
        ("leave", '{"place": "a", "pid": 1, "pid": 2, "started": 1}', "pid"),
    ],
)
def test_a_name_that_is_written_twice_is_refused(service: Api, path: str, body: str, name: str) -> None:
    held = held_of(service)
    prefix = "/v1/agents/here" if path in {"claim", "leave"} else f"/v1/trials/{held.trial}"
    answer = service.http.post(f"{prefix}/{path}", content=body, headers=held.headers | JSON)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:paceline:error:invalid")
    assert answer.json()["errors"] == [{"path": name, "message": "is written twice in one object; keep one"}]
    assert service.get(f"/v1/trials/{held.trial}")["status"] == "running"
    cut = service.http.post(f"{prefix}/{path}", content=body[:-1], headers=held.headers | JSON)
    assert cut.status_code in {400, 422}, "whichever of the two mistakes the parser meets first"


@pytest.mark.parametrize("value", [True, "1"])
def test_booleans_and_texts_are_no_numbers(service: Api, value: Any) -> None:
    held = held_of(service)
    capacity = {"request_id": "one", "nodes": [{"total": {"CPU": value}, "free": {}}]}
    for path, body in [
        (f"trials/{held.trial}/reports", {"reports": [{"sequence": value, "metrics": {}}]}),
        (f"trials/{held.trial}/heartbeat", {"wait_seconds": value}),
        (f"trials/{held.trial}/logs", {"rank": 0, "offset": value, "text": ""}),
        ("agents/here/claim", capacity),
    ]:
        [mistake] = service.post(f"/v1/{path}", 422, json=body, headers=held.headers)["errors"]
        assert "must be a number" in mistake["message"], path


def test_steps_may_be_tokens(service: Api) -> None:
    held = held_of(service, step_metric="tokens")
    assert report(held, '{"tokens": 3000000000, "accuracy": 1}', checkpoint='"there"').status_code == 200
    assert held.shown()["step"] == held.shown()["checkpoint"]["step"] == 3_000_000_000


def test_numbers_and_texts_out_of_bounds_are_refused(service: Api) -> None:
    held = held_of(service)
    assert report(held, "{}", sequence=2**63).status_code == 422
    assert report(held, "{}", step=str(2**63)).status_code == 422
    assert report(held, "{}", checkpoint=r'"a\u0000"').status_code == 422
    assert report(held, "{}", checkpoint=r'"a\ud800"').status_code == 422
    assert report(held, "[" * 100_000).status_code in {400, 413, 422}


def test_a_failure_message_with_unstorable_text_is_still_shown(service: Api) -> None:
    held = held_of(service)
    error = r'{"kind": "user_error", "message": "no file \ud800\u0000", "traceback": "\udcff"}'
    body = f'{{"outcome": "failed", "error": {error}}}'
    path = f"/v1/trials/{held.trial}/finish"
    assert service.http.post(path, content=body, headers=held.headers | JSON).status_code == 200
    assert held.shown()["reason"] == "no file ??"
    all_reads_work(service, held.assignment["experiment"], held.trial)


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
@pytest.mark.parametrize(("part", "value"), [
    ("config.x", r'"\ud800"'), ("config.x", r'"\u0000"'), ("config.x", r'{"\ud800": 1}'), ("config.x", "1e999"),
    ("config.x", "1" + "0" * 400), ("config.x", "[" * 60 + "]" * 60), ("config.x", "[" * 100_000),
    ("tags.x", r'"\u0000"'), ("tags.x", r'"\ud800"'), ("step_metric", r'"\u0000"'), ("limits.max_seconds", "1e999"),
    ("space.x", r'{"type": "categorical", "choices": ["\ud800", "b"]}'),
])  # fmt: skip
def test_specs_that_cannot_be_stored_are_refused_and_leave_nothing(
    service: Api, part: str, value: str, content_type: str
) -> None:
    answer = service.http.post(
        "/v1/experiments", content=spec_with(part, value), headers={"Content-Type": content_type}
    )
    assert answer.status_code in {400, 422}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.get("/v1/experiments?tag=team:x")["items"] == service.get("/v1/experiments")["items"] == []


@pytest.mark.parametrize("scaling", [
    '{"num_workers": 1' + "0" * 400 + "}", '{"num_workers": 10000000}', '{"resources_per_worker": {"CPU": 5e-324}}',
    '{"resources_per_worker": {"CPU": 1e999}}', '{"resources_per_worker": {"CPU": NaN}}',
])  # fmt: skip
def test_resources_that_no_cluster_has_are_refused(service: Api, scaling: str) -> None:
    body = json.dumps(a_spec(trainer=TORCH | {"scaling": "HERE"})).replace('"HERE"', scaling)
    assert service.http.post("/v1/experiments", content=body, headers=JSON).status_code == 422
    assert service.claim(status=204) is None


@pytest.mark.parametrize("amount", ["Infinity", "1e999", "NaN", "-1", "1" + "0" * 400])
def test_impossible_node_resources_are_refused(service: Api, amount: str) -> None:
    service.create(trainer=TORCH)
    nodes = f'[{{"total": {{"CPU": {amount}}}, "free": {{"CPU": {amount}}}}}]'
    body = f'{{"request_id": "one", "nodes": {nodes}}}'
    assert service.http.post("/v1/agents/here/claim", content=body, headers=JSON).status_code in {400, 422}
    assert service.get("/v1/agents")["items"] == []
    assert service.claim() is not None


@pytest.mark.parametrize("path", [
    "/v1/experiments/a%00b", "/v1/trials/a%00b", "/v1/experiments?cursor=%00", "/v1/experiments?tag=a%00:b",
])  # fmt: skip
def test_urls_with_a_nul_are_refused(service: Api, path: str) -> None:
    assert service.get(path, 400)["type"] == "urn:paceline:error:bad-request"


def test_agent_names_have_a_maximum_length(service: Api) -> None:
    service.post(f"/v1/agents/{'n' * 300}/claim", 422, json={"request_id": "one", "nodes": []})


def test_yaml_aliases_cannot_expand_without_limit(service: Api) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
    )
    merges = "a0: &a0 {x: 1, y: 2, z: 3}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
    )
    for body in (merges, "a: &a [*a]\n", "[" * 200_000, "- " * 100_000):
        assert service.post("/v1/experiments", 400, content=body)["type"] == "urn:paceline:error:bad-request"
    for body in (bomb, json.dumps([0] * 200_001)):
        problem = service.post("/v1/experiments", 413, content=body)
        assert (problem["type"], problem["max_parts"]) == ("urn:paceline:error:too-large", 200_000)


def test_json_is_parsed_without_a_content_type(service: Api) -> None:
    service.post("/v1/experiments", 201, content=json.dumps(a_spec(), indent="\t"))


@pytest.mark.parametrize("cursor", ["²", "9" * 30, "nope", "W10=", "WyIiXQ==", "[]"])
def test_a_malformed_cursor_is_refused(service: Api, cursor: str) -> None:
    held = held_of(service)
    experiment = held.assignment["experiment"]
    for path in ("/v1/experiments", f"/v1/experiments/{experiment}/trials"):
        assert service.get(path, 400, params={"cursor": cursor})["type"] == "urn:paceline:error:bad-request"
    for path in (f"/v1/trials/{held.trial}/reports", f"/v1/experiments/{experiment}/events?follow=false"):
        assert service.get(path, 400, params={"cursor": cursor})["type"] == "urn:paceline:error:bad-request"
    service.get(f"/v1/experiments/{experiment}/events", 422, params={"follow": False, "after": 2**70})


def test_pages_continue_after_a_deleted_item(service: Api) -> None:
    names = [service.create()["name"] for _ in range(3)]
    page = service.get("/v1/experiments", params={"limit": 2})
    service.post(f"/v1/experiments/{names[1]}/cancel")
    service.http.delete(f"/v1/experiments/{names[1]}").raise_for_status()
    rest = service.get("/v1/experiments", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [item["name"] for item in page["items"] + rest["items"]] == names[::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_trials_are_listed_in_pages_by_value(service: Api, direction: str) -> None:
    name = service.create(objectives=[{"metric": "accuracy", "direction": direction}])["name"]
    for value in (0.5, None, 0.1, 0.5, None, -0.7):
        held = service.ask(name)
        assert held
        if value is not None:
            held.report(accuracy=value)
    params: dict[str, Any] = {"sort": "value", "limit": 2}
    whole = service.get(f"/v1/experiments/{name}/trials", params=params | {"limit": 10})["items"]
    paged, cursor = [], None
    while page := service.get(f"/v1/experiments/{name}/trials", params=params | ({"cursor": cursor} if cursor else {})):
        paged += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == whole
    values = [trial["value"] for trial in whole[:4]]
    assert values == sorted(values, reverse=direction == "maximize")
    assert [trial["value"] for trial in whole[4:]] == [None, None]


def test_bodies_have_a_maximum_size(service: Api) -> None:
    big = b'{"a": "' + b"x" * 17_000_000 + b'"}'
    for content in (big, iter([big])):
        problem = service.post("/v1/agents/here/claim", 413, content=content, headers=JSON)
        assert (problem["type"], problem["max_bytes"]) == ("urn:paceline:error:too-large", 4_000_000)
    service.get("/v1/agents")


@pytest.mark.parametrize("body", ['{"a": [' + "[]," * 1_200_000 + "[]]}", '{"a": [' + '"",' * 1_200_000 + '""]}'])
@pytest.mark.parametrize("path", ["agents/here/claim", "experiments/an-experiment/replay"])
def test_a_message_of_millions_of_values_is_refused_before_it_is_read(service: Api, path: str, body: str) -> None:
    problem = service.post(f"/v1/{path}", 413, content=body, headers=JSON)
    assert (problem["type"], problem["max_parts"]) == ("urn:paceline:error:too-large", 100_000)


def test_a_message_of_many_values_is_read(service: Api) -> None:
    held, metrics = held_of(service), {f"metric-{index}": index for index in range(400)}
    reports = [{"sequence": index, "metrics": {"accuracy": 1, **metrics}} for index in range(100)]
    held.call("reports", body={"reports": reports})
    assert len(service.get(f"/v1/trials/{held.trial}/reports?limit=1000")["items"]) == 100
    nodes = [{"total": {"CPU": 8}, "free": {"CPU": 8}}] * 5_000
    assert held.api.claim(nodes=nodes, status=204) is None


def test_a_million_escaped_characters_of_a_log_are_taken(service: Api) -> None:
    held, text = held_of(service), '\u20ac,[{:"\\' * 125_000
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": text})
    assert service.http.get(f"/v1/trials/{held.trial}/logs", params={"rank": 0}).text == text


@pytest.mark.parametrize("count", [101, 20_000])
def test_an_answer_lists_a_hundred_mistakes_and_counts_the_others(service: Api, count: int) -> None:
    """A list of all of them was 300 times as large as the body."""
    unknown = {f"unknown-{index}": 1 for index in range(count)}
    name = service.create()["name"]
    for method, path, body in [
        ("POST", "experiments", a_spec() | unknown),
        ("POST", "spaces/preview", a_spec() | unknown),
        ("POST", "agents/here/claim", {"request_id": "1", "nodes": []} | unknown),
        ("POST", f"experiments/{name}/trials", {"params": {"lr": 0.1}} | unknown),
        ("POST", f"experiments/{name}/trials", {"params": unknown | {"lr": 0.1}}),
        ("PATCH", f"experiments/{name}", dict.fromkeys(list(unknown)[:5000], 1)),
    ]:
        answer = service.http.request(method, f"/v1/{path}", json=body)
        assert answer.status_code == 422
        problem = answer.json()
        assert len(problem["errors"]) == 100
        total = min(count, 5_000) if method == "PATCH" else count
        assert problem["detail"].endswith(f"; and {counted(total - 100, 'more mistake')}")
        assert len(answer.content) < 100_000


def test_a_large_patch_is_refused(service: Api) -> None:
    name = service.create()["name"]
    problem = service.call("PATCH", f"/v1/experiments/{name}", 413, json={"tags": {"a": "x" * 200_000}})
    assert problem["max_bytes"] == 200_000


def test_an_empty_idempotency_key_is_refused(service: Api) -> None:
    problem = service.post("/v1/experiments", 422, json=a_spec(), headers={"Idempotency-Key": ""})
    assert problem["type"] == "urn:paceline:error:invalid"
