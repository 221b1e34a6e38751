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
    suspects |= {"SERVICE": f"pl_{'a' * 43}", "ROUTER": f"sk-or-v1-{'0a' * 32}", "MODELS": f"sk-{'letters' * 7}"}
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


INDEX = "https://bob:abc-the-value@packages.example/simple"


def advice_for(service: Api, **trainer: Any) -> dict[str, str]:
    created = service.post("/v1/experiments", 201, json=with_trainer(**trainer))
    assert "abc-the-value" not in str(created["warnings"])
    return {one["path"]: one["message"] for one in created["warnings"]}


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "CONDA_CHANNELS"])
def test_what_an_installer_needs_is_not_to_be_a_secret_of_the_agent(service: Api, name: str) -> None:
    """It would install from the public index: workers fetch their secrets once everything is installed."""
    for where in ({"runtime_env": {"pip": ["emoji"], "env_vars": {name: INDEX}}}, {"env": {name: INDEX}}):
        (advice,) = advice_for(service, **where).values()
        assert "Let the nodes give it, in the installer's configuration" in advice
        assert "trainer.secrets" not in advice
    installs = {"secrets": {name: SOURCE, "WANDB_API_KEY": SOURCE}, "runtime_env": {"uv": ["emoji"]}}
    assert set(found := advice_for(service, **installs)) == {f"trainer.secrets.{name}"}
    assert "installers do not see it" in found[f"trainer.secrets.{name}"]
    assert advice_for(service, secrets={name: SOURCE}, runtime_env={"conda": "train"}) == {}


def test_a_secret_beside_an_installer_may_be_for_the_installer(service: Api) -> None:
    env = {"pip": ["emoji @ git+https://${GIT_TOKEN}@host/emoji"], "env_vars": {"GIT_TOKEN": "abc-the-value"}}
    (advice,) = advice_for(service, runtime_env=env).values()
    assert "trainer.secrets: {GIT_TOKEN: {from_agent_env: GIT_TOKEN}}; installers do not see that" in advice


TOKEN = f"hf_{'a' * 20}"
BUCKET = "s3://AKIA:abc-the-value@bucket/train"


@pytest.mark.parametrize(
    ("trainer", "path", "advice"),
    [
        (
            {"runtime_env": {"pip": {"packages": ["emoji"], "pip_install_options": ["-i", INDEX]}}},
            "runtime_env.pip.pip_install_options.1",
            "Let the nodes give it",
        ),
        (
            {"runtime_env": {"uv": {"packages": ["emoji"], "uv_pip_install_options": [f"--index={INDEX}"]}}},
            "runtime_env.uv.uv_pip_install_options.0",
            "Let the nodes give it",
        ),
        (
            {"runtime_env": {"conda": {"dependencies": ["python", {"pip": ["emoji", f"--index-url {INDEX}"]}]}}},
            "runtime_env.conda.dependencies.1.pip.1",
            "Let the nodes give it",
        ),
        (
            {"runtime_env": {"conda": {"channels": [f"https://conda.example/t/ab-{'0' * 20}/main"]}}},
            "runtime_env.conda.channels.0",
            "Let the nodes give it",
        ),
        (
            {"validation": {"entrypoint": "train:validate", "fn_kwargs": {"hub": {"login": TOKEN}}}},
            "validation.fn_kwargs.hub.login",
            "by trainer.secrets, and read it there",
        ),
        (
            {"validation": {"entrypoint": "train:validate", "fn_kwargs": {"api_key": "0123456789abcdef"}}},
            "validation.fn_kwargs.api_key",
            "by trainer.secrets, and read it there",
        ),
        (
            {"datasets": {"train": {"read": "parquet", "paths": ["s3://bucket/a", BUCKET]}}},
            "datasets.train.paths.1",
            "a dataset function",
        ),
        (
            {"datasets": {"train": {"read": "csv", "paths": ["s3://bucket/a?region=b&secret_key=abc-the-value"]}}},
            "datasets.train.paths.0",
            "a dataset function",
        ),
        (
            {"datasets": {"train": {"read": "csv", "paths": [f"https://bucket.example/a?sp=r&sig={'0a' * 20}%3D"]}}},
            "datasets.train.paths.0",
            "a dataset function",
        ),
        (
            {"datasets": {"a": {"read": "lance", "paths": ["/a"], "options": {"o": {"secret": "0123456789abcdef"}}}}},
            "datasets.a.options.o.secret",
            "a dataset function",
        ),
    ],
)
def test_a_secret_anywhere_in_the_trainer_is_answered_with_advice(
    service: Api, trainer: dict[str, Any], path: str, advice: str
) -> None:
    assert advice in advice_for(service, **trainer)[f"trainer.{path}"]


def test_ordinary_texts_of_a_trainer_are_no_secrets(service: Api) -> None:
    paths = ["s3://bucket/pl_training_data_2024/hf_train_features/sk-resnet50-imagenet1k-v2.parquet", "/t/a-1"]
    options = {"sort_key": "event_timestamp_2024", "partition_key": "event_timestamp_2024"}
    paths += ["https://discuss.pytorch.org/t/how-to-freeze-layers/1234", "https://api.example/plot?a=1&sig=0.5"]
    read = {"read": "parquet", "paths": paths, "options": {**options, "columns": ["api_key_hash"], "key": "customer"}}
    channel = "https://conda.anaconda.org/conda-forge"
    conda = {"channels": [channel], "dependencies": ["python=3.11", {"pip": ["hf_xet"]}]}
    trainer = {
        "datasets": {"train": read, "tokens": read},
        "validation": {"entrypoint": "train:validate", "fn_kwargs": {"max_tokens": "4096", "eos_token": "</s>"}},
        "scaling": {"label_selector": {"secret-zone": "eu-central-1"}, "resources_per_worker": {"CPU": 1}},
        "secrets": {"WANDB_API_KEY": SOURCE, "DB": {"from_agent_file": "/run/secrets/database-password-1"}},
    }
    assert advice_for(service, **trainer, runtime_env={"conda": conda}) == {}
    pip = {"packages": ["sk-learn-contrib-pipelines", "a @ https://host:8080/a.whl"], "pip_version": "==26.0"}
    assert advice_for(service, **trainer, runtime_env={"pip": pip, "env_vars": {"PIP_INDEX_URL": "https://x"}}) == {}
