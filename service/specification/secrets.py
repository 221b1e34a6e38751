"""Secrets in a spec: what no agent would give, and what should have been a secret."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from search.mistakes import Mistake, Path
from trainer.wire import Kind, RuntimeEnv, Trainer

RESERVED = ("PACELINE_", "RAY_AUTH_")
"""How the variables begin that hold an agent's or a worker's own access."""
RESERVED_IN_WORDS = " or ".join(RESERVED)

LOOKS_SECRET = re.compile(
    r"(^|_)(AUTH|CRED(ENTIAL)?S?|KEY|PASS(PHRASE|WD|WORD)?|PWD|SECRETS?|TOKEN)(_|$)"
    r"|((API|ACCESS|PRIVATE|SECRET)_?KEY|(ACCESS|AUTH)_?TOKEN|PASSWORD)S?(_|$)",
    re.IGNORECASE,
)
KNOWN_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])((hf_|gh[oprsu]_|npm_|AKIA|ASIA)[A-Za-z0-9]{16}"
    r"|(github_pat_|glpat-|pypi-|xox[abeprs]-|AIza)[A-Za-z0-9_-]{12}|pl_[A-Za-z0-9_-]{40}"
    r"|sk-([a-z0-9-]{0,20}[0-9a-f]{32}|[a-z0-9]{40}"
    r"|(?=[A-Za-z_-]{0,40}[0-9])(?=[a-z0-9_-]{0,40}[A-Z])[A-Za-z0-9_-]{16}))"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/@\s:]{0,200}:[^/@\s{}$]{1,500}@"
    r"|https?://[^/\s]{1,253}/t/[a-z]{2}-[0-9a-f-]{20}"
    r"|[?&]((access_token|account_key|client_secret|sas_token|secret_key)=[^&{}$\s]|sig=[^&{}$\s]{16})"
)
"""How keys of well-known services, JSON web tokens and private keys begin, a URL with a password, and conda's with a
token."""

LOOKS_RANDOM = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S{16,}")
"""In `config` a name is not enough: `eos_token: </s>` is no secret."""

NAMES_COLUMNS = re.compile(r"(^|_)(FOREIGN|GROUP|HASH|JOIN|PARTITION|PRIMARY|SORT)_KEYS?$", re.IGNORECASE)
"""In the options of a reader, `sort_key` names a column."""

INSTALLERS_VARIABLE = re.compile(r"(PIP|UV|CONDA)_", re.IGNORECASE)
"""How the variables begin that configure what installs a runtime environment."""

BY_AGENT = "Let the agent give it: trainer.secrets: {{{0}: {{from_agent_env: {0}}}}}"
UNDER_OTHER_NAME = (
    f"Let the agent give it under a name that does not begin with {RESERVED_IN_WORDS}: "
    "trainer.secrets: {NAME: {from_agent_env: NAME}}"
)
BY_NODES = "Let the nodes give it, in the installer's configuration (pip.conf, uv.toml, .condarc) or a netrc file"
IN_ENVIRONMENT = "Let the agent give it to the environment, by trainer.secrets, and read it there"
BY_DATASET_FUNCTION = (
    "Let the nodes have the access, or write a dataset function, which finds trainer.secrets in its environment"
)
ELSEWHERE: Mapping[Path, str] = {
    ("trainer", "runtime_env"): BY_NODES,
    ("trainer", "datasets"): BY_DATASET_FUNCTION,
}
"""By place, what to do where the environment of the workers is no help."""
NOT_FOR_INSTALLERS = "installers do not see that: what they need, let the nodes give"
NOT_SEEN = f"installers do not see it: workers fetch it once everything is installed. {BY_NODES}"


def mistakes_in_secrets(trainer: Trainer) -> Iterator[Mistake]:
    if trainer.secrets and trainer.kind is Kind.EXTERNAL:
        yield Mistake(
            ("trainer", "secrets"), "are given by agents to the trials that they run; kind external has no agent"
        )
    for name, source in trainer.secrets.items():
        path = ("trainer", "secrets", name)
        if name in trainer.env:
            yield Mistake(path, "is also in trainer.env; keep one of the two")
        if name.upper().startswith(RESERVED):
            yield Mistake(path, f"must not begin with {RESERVED_IN_WORDS}")
        if (source.from_agent_env or "").upper().startswith(RESERVED):
            reason = f"begins with {RESERVED_IN_WORDS}, and no agent gives such a variable"
            yield Mistake((*path, "from_agent_env"), reason)


def secret_warnings(trainer: Trainer, config: Mapping[str, Any]) -> Iterator[Mistake]:
    """Name each field whose value looks like a secret, never the value."""
    env = trainer.runtime_env or RuntimeEnv()
    is_installing = bool(env.pip or env.uv or isinstance(env.conda, dict))
    for where, variables in ((("env",), trainer.env), (("runtime_env", "env_vars"), env.env_vars)):
        for name, value in variables.items():
            is_named_so = LOOKS_SECRET.search(name) is not None and value and not value.isdigit()
            if is_named_so or KNOWN_TOKEN.search(value):
                yield _warning(("trainer", *where, name), _advice_for_variable(name, is_installing=is_installing))
    for name in filter(INSTALLERS_VARIABLE.match, trainer.secrets if is_installing else ()):
        yield Mistake(("trainer", "secrets", name), NOT_SEEN)
    others = trainer.model_dump(mode="json", exclude={"env": True, "secrets": True, "runtime_env": {"env_vars"}})
    for path, text in _texts_in({"trainer": others, "config": config}, ()):
        if KNOWN_TOKEN.search(text) or _is_named_constant(path, text):
            yield _warning(path, ELSEWHERE.get(path[:2], IN_ENVIRONMENT))


def _advice_for_variable(name: str, *, is_installing: bool) -> str:
    """Ray gives the variables of both places to installers, too."""
    if INSTALLERS_VARIABLE.match(name):
        return BY_NODES
    advice = UNDER_OTHER_NAME if name.upper().startswith(RESERVED) else BY_AGENT.format(name)
    return f"{advice}; {NOT_FOR_INSTALLERS}" if is_installing else advice


def _texts_in(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts_in(inner, (*path, key))


def _is_named_constant(path: Path, text: str) -> bool:
    is_named_so = any(LOOKS_SECRET.search(str(name)) for name in _names_of_constant(path))
    return is_named_so and LOOKS_RANDOM.fullmatch(text) is not None


def _names_of_constant(path: Path) -> Path:
    """The part of the path that names an argument of the user's functions, or of a reader of Ray Data."""
    match path:
        case ("config", *names) | ("trainer", "validation", "fn_kwargs", *names):
            return tuple(names)
        case ("trainer", "datasets", _, "options", *names):
            return tuple(name for name in names if not NAMES_COLUMNS.search(str(name)))
    return ()


def _warning(path: Path, advice: str) -> Mistake:
    message = "looks like a secret, and the specification is stored, shown to readers and copied to MLflow."
    return Mistake(path, f"{message} {advice}. A value that has been submitted is stored already: replace it")
