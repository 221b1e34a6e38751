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
    r"(?<![A-Za-z0-9])(hf_|gh[oprsu]_|github_pat_|glpat-|npm_|pl_|pypi-|sk-|xox[abeprs]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/@\s:]{0,200}:[^/@\s{}$]{1,500}@"
)
"""How keys of well-known services, JSON web tokens and private keys begin, and a URL with a password."""

LOOKS_RANDOM = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S{16,}")
"""In `config` a name is not enough: `eos_token: </s>` is no secret."""

BY_AGENT = "Let the agent give it: trainer.secrets: {{{0}: {{from_agent_env: {0}}}}}"
UNDER_OTHER_NAME = (
    f"Let the agent give it under a name that does not begin with {RESERVED_IN_WORDS}: "
    "trainer.secrets: {NAME: {from_agent_env: NAME}}"
)
BY_NODES = "Let the nodes give it, in pip's configuration or a netrc file"
IN_ENVIRONMENT = "Let the agent give it to the environment, by trainer.secrets, and read it there"


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
    for where, variables in ((("env",), trainer.env), (("runtime_env", "env_vars"), env.env_vars)):
        for name, value in variables.items():
            is_named_so = LOOKS_SECRET.search(name) is not None and value and not value.isdigit()
            if is_named_so or KNOWN_TOKEN.search(value):
                is_reserved = name.upper().startswith(RESERVED)
                yield _warning(("trainer", *where, name), UNDER_OTHER_NAME if is_reserved else BY_AGENT.format(name))
    for path, text, advice in _texts(trainer, env, config):
        if KNOWN_TOKEN.search(text) or _is_named_constant(path, text):
            yield _warning(path, advice)


def _texts(trainer: Trainer, env: RuntimeEnv, config: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Other texts in which a secret may be, each with what to do instead."""
    for name, installer in (("pip", env.pip), ("uv", env.uv)):
        for index, requirement in enumerate(installer.packages if installer is not None else ()):
            yield ("trainer", "runtime_env", name, "packages", index), requirement, BY_NODES
    for index, argument in enumerate(trainer.command or ()):
        yield ("trainer", "command", index), argument, IN_ENVIRONMENT
    for path, text in _texts_in(config, ("config",)):
        yield path, text, IN_ENVIRONMENT


def _texts_in(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts_in(inner, (*path, key))


def _is_named_constant(path: Path, text: str) -> bool:
    is_named_so = path[0] == "config" and any(LOOKS_SECRET.search(str(name)) for name in path[1:])
    return is_named_so and LOOKS_RANDOM.fullmatch(text) is not None


def _warning(path: Path, advice: str) -> Mistake:
    message = "looks like a secret, and the specification is stored, shown to readers and copied to MLflow."
    return Mistake(path, f"{message} {advice}. A value that has been submitted is stored already: replace it")
