"""The components of the stack: guardian, Ray, MLflow, service and agent, each with its command and its checks."""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from service.module_command import module_command
from service.stack.child_process import ChildProcess
from service.stack.http_checks import AGENT_NAME, AgentCheck, answers
from service.stack.mlflow_command import MLFLOW_ENVIRONMENT, mlflow_server_command, mlflow_server_environment
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.ports import accepts, free_port
from service.stack.process_tags import VARIABLE as TAG_VARIABLE
from service.stack.process_tags import tag_environment
from service.stack.supervisor import Component
from service.stack.up_options import HOST, Options

NODE_ENVIRONMENT = {
    # Workers are forked from a process that has imported what they need; those that Ray would start ahead stay idle.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_START_HOOK": "trainer.ray_train.processes.node_start.change",
}
"""For `ray start`."""


def stages_of(options: Options, record: CleanupRecord) -> Sequence[Sequence[Component]]:
    """Return the components; they stop in reverse order, those of one stage at the same time.

    All start at the same time; the agent waits for Ray and the service when it has done its imports.
    """
    logs = options.data_dir / "stack"
    logs.mkdir(exist_ok=True)
    env = _environment(options) | tag_environment(record.tag)
    ray_port = free_port(HOST)
    ray, service = _ray(options, Path(record.directory), ray_port, env, logs), _service(options, env, logs)
    backends = [ray, _mlflow(options, env, logs)] if options.mlflow else [ray]
    agent = _agent(options, f"{HOST}:{ray_port}", env, logs)
    return [[_guardian(record, logs)], backends, [service], [agent]]


def _environment(options: Options) -> dict[str, str]:
    """Return the environment of all components. Ray's token keeps other users of the machine out of the cluster."""
    token = options.data_dir / "ray-token"
    token.unlink(missing_ok=True)
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    mlflow = {"PACELINE_MLFLOW_URI": options.mlflow_url} if options.mlflow_url else {}
    # A proxy from the environment cannot reach loopback addresses, and MLflow's client asks it for all of them.
    direct = ",".join(filter(None, [inherited.get("NO_PROXY") or inherited.get("no_proxy"), "127.0.0.1,localhost"]))
    return (
        inherited
        | mlflow
        | MLFLOW_ENVIRONMENT
        | {
            "PACELINE_DATA_DIR": str(options.data_dir),
            "PACELINE_HOST": HOST,
            "PACELINE_PORT": str(options.port),
            "PACELINE_URL": options.url,
            # Ray then takes 127.0.0.1 as the node's address, and all its ports listen there only. With the option
            # --node-ip-address=127.0.0.1 it would replace the address and listen on all interfaces.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": direct,
            "no_proxy": direct,
        }
    )


def _guardian(record: CleanupRecord, logs: Path) -> Component:
    """It does not have the stack's tag, since it must outlive the stack."""
    log = _empty_file(logs / "guardian.log")
    child = ChildProcess(lambda: record.guardian_command, os.environ, log, lifeline=True)
    return Component("guardian", child, lambda: True)


def _ray(options: Options, directory: Path, port: int, env: dict[str, str], logs: Path) -> Component:
    cluster = directory / "ray_current_cluster"

    def command() -> Sequence[str]:
        directory.mkdir(mode=0o700, exist_ok=True)  # what removes old files of /tmp may have removed it
        _empty_directory(directory)  # otherwise Ray finds an earlier head's files
        command = module_command("ray.scripts.scripts", "start", "--head", "--block", "--port", str(port))
        command += ["--temp-dir", str(directory), "--num-cpus", str(options.cpus)]
        # The log monitor sends output to drivers that ask for it, as no agent does; it costs 3 % of a core.
        command += ["--include-dashboard", "false", "--include-log-monitor", "false", "--disable-usage-stats"]
        # The monitor is the autoscaler, which has nothing to scale here, and takes 100 MB.
        return [*command, "--no-monitor", "--log-style", "record", "--log-color", "false"]

    # TMPDIR: the workers' temporary files are removed with the stack. User code sees none of Paceline's settings.
    env = {name: value for name, value in env.items() if name == TAG_VARIABLE or not name.startswith("PACELINE_")}
    env |= {"TMPDIR": str(directory), **NODE_ENVIRONMENT}
    child = ChildProcess(command, env, _empty_file(logs / "ray.log"))
    # By itself Ray takes 2 s to end, for workers that the agent has ended before. On a busy machine it may not start
    # within the 30 s that it allows itself.
    return Component(
        "ray", child, lambda: cluster.exists() and accepts(HOST, port), grace_seconds=0.5, retries_start=True
    )


def _mlflow(options: Options, env: Mapping[str, str], logs: Path) -> Component:
    hosts = [name.strip() for name in env.get("PACELINE_HOSTS", "").split(",") if name.strip()]
    command = mlflow_server_command(options.data_dir / "mlflow", HOST, options.mlflow_port)
    env = {**env, **mlflow_server_environment(options.mlflow_port, hosts)}
    child = ChildProcess(lambda: command, env, _empty_file(logs / "mlflow.log"))
    is_healthy = _check(child, options.mlflow_port, f"{options.mlflow_url}/health")
    # The mirror may lag; training must not.
    return Component("mlflow", child, is_healthy, is_healthy=is_healthy, low_priority=True)


def _service(options: Options, env: Mapping[str, str], logs: Path) -> Component:
    command = module_command("service.cli", "serve")
    child = ChildProcess(lambda: command, env, _empty_file(logs / "service.log"))
    is_ready, is_healthy = (_check(child, options.port, f"{options.url}/{path}") for path in ("readyz", "healthz"))
    return Component("service", child, is_ready, is_healthy=is_healthy)


def _check(child: ChildProcess, port: int, url: str) -> Callable[[], bool]:
    """Whether the child itself answers: another stack that starts at the same time may have taken its port."""
    return lambda: answers(url) and child.listens_on(port)


def _agent(options: Options, ray_address: str, env: Mapping[str, str], logs: Path) -> Component:
    check = AgentCheck(options.url, options.token)

    def command() -> Sequence[str]:
        check.starts()
        return module_command("service.cli", "agent", "--name", AGENT_NAME, "--ray-address", ray_address)

    child = ChildProcess(command, env, _empty_file(logs / "agent.log"))
    return Component("agent", child, check.is_connected, grace_seconds=5)


def _empty_directory(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()


def _empty_file(log: Path) -> Path:
    log.write_bytes(b"")
    return log
