"""Secrets in a spec: only where they are found is stored, and what should be a secret is answered with a warning."""

from typing import Any

import pytest

from tests.conftest import Api, a_spec

SOURCE = {"from_agent_env": "WANDB_API_KEY"}


def with_trainer(**trainer: Any) -> dict[str, Any]:
    return a_spec(trainer={"kind": "torch", "entrypoint": "train:train_fn", **trainer})


def test_a_spec_and_an_assignment_name_the_source_of_a_secret(service: Api) -> None:
    sources = {"W": SOURCE, "F": {"from_agent_file": "/run/secrets/f"}}
    created = service.post("/v1/experiments", 201, json=with_trainer(secrets=sources))
    given = {name: {key: value for key, value in one.items() if value} for name, one in secrets_of(created).items()}
    assert given == sources
    held = service.claim()
    assert held
    assert secrets_of(held.assignment) == secrets_of(created)


def secrets_of(shown: dict[str, Any]) -> dict[str, Any]:
    trainer: dict[str, Any] = shown.get("spec", shown)["trainer"]
    secrets: dict[str, Any] = trainer["secrets"]
    return secrets


@pytest.mark.parametrize(
    ("trainer", "path", "message"),
    [
        ({"secrets": {"W": {}}}, "trainer.secrets.W", "must have either from_agent_env"),
        ({"secrets": {"W": {**SOURCE, "from_agent_file": "/f"}}}, "trainer.secrets.W", "must have either"),
        ({"secrets": {"W": {"from_agent_file": "f"}}}, "trainer.secrets.W.from_agent_file", "absolute path"),
        ({"secrets": {"W": {"value": "x"}}}, "trainer.secrets.W.value", "unknown field"),
        ({"secrets": {"a-b": SOURCE}}, "trainer.secrets.a-b", "a variable's name"),
        ({"secrets": {"W": SOURCE}, "env": {"W": "1"}}, "trainer.secrets.W", "is also in trainer.env"),
        ({"secrets": {"PACELINE_TOKEN": SOURCE}}, "trainer.secrets.PACELINE_TOKEN", "must not begin with"),
        (
            {"secrets": {"W": {"from_agent_env": "PACELINE_TOKEN"}}},
            "trainer.secrets.W.from_agent_env",
            "no agent gives such a variable",
        ),
        ({"kind": "external", "secrets": {"W": SOURCE}}, "trainer.secrets", "kind external has no agent"),
    ],
)
def test_mistakes_in_secrets_are_named(service: Api, trainer: dict[str, Any], path: str, message: str) -> None:
    problem = service.post("/v1/experiments", 422, json=with_trainer(**trainer))
    assert message in {one["path"]: one["message"] for one in problem["errors"]}[path]


def test_a_secret_in_another_place_is_answered_with_advice(service: Api) -> None:
    token, index = f"hf_{'a' * 20}", "--index-url=https://me:abc-the-value@packages.example/simple"
    env = {"pip": ["emoji", index], "env_vars": {"PIP_PASSWORD": "abc-the-value", "A": "1"}}
    config = {"login": token, "epochs": 3, "note": "task-1"}
    command = ["python", "train.py", f"--token={token}", "{params.lr}"]
    for trainer, kind in (({"runtime_env": env}, "torch"), ({"command": command, "entrypoint": None}, "command")):
        spec = with_trainer(**trainer, kind=kind)
        warnings = service.post("/v1/experiments", 201, json=spec | {"config": config})["warnings"]
        advice = {one["path"]: one["message"] for one in warnings}
        assert set(advice) == {"config.login"} | (
            {"trainer.command.2"}
            if kind == "command"
            else {"trainer.runtime_env.pip.packages.1", "trainer.runtime_env.env_vars.PIP_PASSWORD"}
        )
        assert not [text for text in advice.values() if "abc-the-value" in text or token in text]


def test_a_constant_that_looks_like_a_secret_is_answered_with_advice(service: Api) -> None:
    key = "0123456789abcdef"
    config = {
        "wandb_api_key": key,
        "database": {"password": key, "hosts": [f"https://me:{key}@db"]},
        "eos_token": "</s>",
        "primary_key": "customer",
        "text": key,
    }
    created = service.post("/v1/experiments", 201, json=with_trainer() | {"config": config})
    assert {one["path"] for one in created["warnings"]} == {
        "config.wandb_api_key",
        "config.database.password",
        "config.database.hosts.0",
    }
    assert key not in str(created["warnings"])


def test_a_variable_that_looks_like_a_secret_is_answered_with_advice(service: Api) -> None:
    secret, token = "abc-the-value", f"hf_{'a' * 20}"
    suspects = {"WANDB_API_KEY": secret, "db_password": secret, "HF_LOGIN": token, "DB": f"postgres://me:{secret}@db/x"}
    suspects |= {
        "WANDBAPIKEY": secret,
        "AWS_ACCESS_KEYS": secret,
        "A": f"Bearer {token}",
        "REDIS": f"redis://:{secret}@r",
    }
    suspects |= {
        "G": f"AIza{'a' * 35}",
        "JWT": f"eyJ{'a' * 20}.eyJ{'b' * 20}.c",
        "P": "-----BEGIN RSA PRIVATE KEY-----",
    }
    suspects |= {"SERVICE": f"pl_{'a' * 43}"}
    harmless = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MAX_TOKEN": "512", "MONKEY": "a", "KEY": ""}
    harmless |= {
        "TASK": "risk-assessment-of-models",
        "URL": "https://host:8080/a@b",
        "PROXY": "http://${USER}:${KEY}@host",
    }
    created = service.post("/v1/experiments", 201, json=with_trainer(env=suspects | harmless))
    advice = {one["path"]: one["message"] for one in created["warnings"]}
    assert set(advice) == {f"trainer.env.{name}" for name in suspects}
    assert "trainer.secrets: {WANDB_API_KEY: {from_agent_env: WANDB_API_KEY}}" in advice["trainer.env.WANDB_API_KEY"]
    assert not [text for text in advice.values() if secret in text or token in text]
    [own] = service.post("/v1/experiments", 201, json=with_trainer(env={"PACELINE_TOKEN": secret}))["warnings"]
    assert "under a name that does not begin with PACELINE_" in own["message"]
    assert service.post("/v1/experiments", 201, json=with_trainer(secrets={"KEY": SOURCE}))["warnings"] == []
