"""docker-compose.production.yml as a test runs it: with an S3 server, and one CPU on each Ray worker."""

from tests.stack.compose import Compose

FILES = ("docker-compose.yml", "docker-compose.production.yml", "tests/stack/docker-compose.test.yml")
SERVERS = ("postgres", "mlflow", "proxy", "service", "service-2", "s3", "ray-head", "ray-worker", "agent")
HELPERS = {"PROXY_IMAGE": "paceline-test-proxy:latest", "S3_IMAGE": "paceline-test-s3:latest"}
STORAGE = {
    "PACELINE_STORAGE": "s3://paceline/runs?scheme=http&region=us-east-1&endpoint_override=s3%3A9000",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}
ACCESS = {"POSTGRES_PASSWORD": "of-the-tests", "PACELINE_INSECURE": "1"}
LEASE_SECONDS = 10
MANY = 1000
"""More trials than an experiment has when the faults are over."""


def production() -> Compose:
    """Each worker has one CPU, so the two workers of each trial of digits are on different nodes."""
    workers = {"RAY_WORKER_CPUS": "1", "RAY_WORKER_MEMORY": "4g"}
    return Compose(FILES, {**HELPERS, **STORAGE, **ACCESS, **workers}, SERVERS)
