"""What a runtime environment requires and excludes."""

import re
from collections.abc import Iterable, Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement

from search.mistakes import Mistake, shortened
from trainer.wire import REQUIREMENTS_FILE, Kind, Pip, RuntimeEnv, Trainer, Uv, is_in_package, requirements_in

IN_SPECIFICATION = ("trainer", "runtime_env")

NOT_SUPPORTED = {
    "working_dir": "is not supported: the package is the workers' working directory; send the files as code",
    "py_modules": "is not supported: send the modules as code, in the package; or name their wheels in pip.packages",
    "image_uri": "is not supported: start the cluster's nodes from the image, so that Ray and Python have one version",
    "container": "is not supported: start the cluster's nodes from the image, so that Ray and Python have one version",
    "py_executable": "is not supported: workers run the Python of their environment; name packages in pip, uv or conda",
    "excludes": "belongs to working_dir, which is not supported; `paceline submit` leaves out caches and hidden files",
    "worker_process_setup_hook": "is not supported: call the hook in the training function",
    "mpi": "is not supported: use kind command for programs that mpirun starts",
}
"""Fields of Ray's runtime environment, and why they are refused."""

NAMES_RAY = re.compile(r"ray\s*($|[\[=<>!~;@ ])", re.IGNORECASE)
FILE_OPTION = re.compile(r"(-r|-c|-e|--requirement|--constraint|--editable)\b")
FILE = re.compile(r"[/\\]|\.(whl|zip|tar\.gz)$")
OPTION = re.compile(r"^--?[\w-]+(=|\s+)")
OPTIONS_OF_REQUIREMENT = re.compile(r"\s-.*", re.DOTALL)
NO_REQUIREMENT = re.compile(r"[-/]|[a-z][a-z0-9+.-]*:/|.*\$\{", re.IGNORECASE | re.DOTALL)
"""An option, an absolute path, a URL, or what only pip on the node knows: it replaces `${NAME}`."""
NAME_AND_VERSION = re.compile(r"(?P<name>\w[\w.-]*(\[[\w.,\s-]*\])?)(\s*=\s*|\s+)(?P<version>\d[\w.+!]*)")
"""A requirement as conda takes it, or one without an operator."""
MOST_PARSED, LONGEST_PARSED, PER_REQUIREMENT = 100_000, 2_000, 50
"""Characters: of all requirements, of one, and those that each counts for besides its own. The service has to answer
others, too: 250,000 short requirements take 15 s, and so does one of 800,000 characters."""


def mistakes_in_runtime_env(trainer: Trainer) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    env = trainer.runtime_env
    if env is None:
        return
    if trainer.kind is Kind.EXTERNAL:
        yield Mistake(("runtime_env",), "is set up by agents for the trials that they run; kind external has no agent")
    if len(used := [name for name in ("pip", "uv", "conda") if getattr(env, name) is not None]) > 1:
        yield Mistake(("runtime_env",), f"has {' and '.join(used)}; Ray takes one of them")
    for name in env.env_vars:
        if (where := _also_in(name, trainer)) is not None:
            yield Mistake(("runtime_env", "env_vars", name), f"is also in trainer.{where}; keep one of the two")
    for name, installer in _installers(env):
        yield from _mistakes_in_installer(("runtime_env", name), installer, trainer.package)


def _also_in(name: str, trainer: Trainer) -> str | None:
    return next((where for where in ("env", "secrets") if name in getattr(trainer, where)), None)


def _installers(env: RuntimeEnv) -> list[tuple[str, Pip | Uv]]:
    return [(name, one) for name, one in (("pip", env.pip), ("uv", env.uv)) if one is not None]


def _mistakes_in_installer(path: tuple[str, ...], installer: Pip | Uv, package: str | None) -> Iterator[Mistake]:
    if not installer.packages and not installer.from_package:
        yield Mistake(path, "installs nothing; name packages, or set from_package: true")
    if installer.from_package and package is None:
        yield Mistake(path, f"takes the package's {REQUIREMENTS_FILE}, but there is no package: send the code")
    packages = enumerate(installer.packages)
    requirements = ((index, one) for index, lines in packages for _, one in requirements_in(lines.encode()))
    for index, _, fault in _faults_in(installer, requirements):
        yield Mistake((*path, "packages", index), fault)


def _faults_in(installer: Pip | Uv, requirements: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield the place, the text and the fault of each requirement that has a fault.

    A version of pip that is named may read more: those before 24.1 take `a>=1.0.*`.
    """
    left = 0 if isinstance(installer, Pip) and installer.pip_version is not None else MOST_PARSED
    for place, requirement in requirements:
        fault = _fault_of_place(requirement)
        own = OPTIONS_OF_REQUIREMENT.sub("", requirement).rstrip()
        if fault is None and len(own) <= min(left, LONGEST_PARSED) and not NO_REQUIREMENT.match(requirement):
            left -= len(own) + PER_REQUIREMENT
            fault = _fault_of_form(own)
        if fault is not None:
            yield place, requirement, fault


def _fault_of_place(requirement: str) -> str | None:
    if NAMES_RAY.match(requirement):
        return "names ray, whose version must be the cluster's; leave it out"
    named = OPTION.sub("", requirement, count=1)
    if FILE_OPTION.match(requirement) or (FILE.search(named) and is_in_package(named)):
        return "is a file, which is not there when the nodes install; name its packages, or an absolute path or a URL"
    return None


def _fault_of_form(requirement: str) -> str | None:
    """Installers refuse it, too, but only after Ray has copied the node's environment, and three times."""
    try:
        Requirement(requirement)
    except (InvalidRequirement, RecursionError):
        meant = NAME_AND_VERSION.fullmatch(requirement)
        right = f"{meant['name']}=={meant['version']}" if meant else "it as in emoji==2.0 or emoji>=1,<3"
        return f"is no requirement; write {right}"
    return None


def mistakes_in_requirements(trainer: Trainer, files: Sequence[str], content: bytes | None) -> Iterator[Mistake]:
    """The mistakes of `from_package`. `files` are the package's, and `content` is that of its requirements.txt."""
    installers = [(name, one) for name, one in _installers(trainer.runtime_env or RuntimeEnv()) if one.from_package]
    for name, installer in installers:
        path = (*IN_SPECIFICATION, name)
        if content is None:
            listed = ", ".join(files[:20])
            yield Mistake(path, f"is from the package's {REQUIREMENTS_FILE}, which it does not have; it has: {listed}")
            return
        try:
            requirements = requirements_in(content)
        except UnicodeDecodeError:
            yield Mistake(path, f"the package's {REQUIREMENTS_FILE} is not UTF-8 text; save it as UTF-8")
            return
        for number, requirement, fault in _faults_in(installer, requirements):
            yield Mistake(path, f"line {number} of {REQUIREMENTS_FILE}, {shortened(requirement)!r}, {fault}")


def package_warnings(trainer: Trainer, files: Sequence[str]) -> Iterator[Mistake]:
    """What a package with these files has that is not used."""
    installs = any(one.from_package for _, one in _installers(trainer.runtime_env or RuntimeEnv()))
    if REQUIREMENTS_FILE in files and not installs and trainer.kind is not Kind.EXTERNAL:
        message = (
            f"the package's {REQUIREMENTS_FILE} is not used: the nodes must have what it names. "
            "To have it installed, add trainer.runtime_env: {pip: from_package}"
        )
        yield Mistake(IN_SPECIFICATION, message)


def with_reason(mistake: Mistake) -> Mistake:
    """For a field of Ray's runtime environment that is refused, the reason; any other mistake unchanged."""
    is_field = mistake.path[:2] == IN_SPECIFICATION and len(mistake.path) == len(IN_SPECIFICATION) + 1
    reason = NOT_SUPPORTED.get(str(mistake.path[-1])) if is_field else None
    return Mistake(mistake.path, reason) if reason is not None else mistake
