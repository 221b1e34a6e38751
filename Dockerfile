# Two images. `service` is for the service, its migrations and MLflow, without Ray and torch; `node` is `service` with
# both, for Ray nodes and the agent. See docker-compose.yml and docs/operations/deployment.md#images.
#
# Arguments: BASE_IMAGE, which a digest pins (python@sha256:…); SERVICE_PACKAGES, further packages for both images, such as
# torch for the sampler gp; PIP_EXTRA_INDEX_URL, pip's own, for torch's CPU builds, which are far smaller.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
ENV PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build

# Dependencies first: these layers change only with the pinned versions.
FROM base AS packages
ARG PIP_EXTRA_INDEX_URL
ARG SERVICE_PACKAGES
RUN python -m venv --without-pip /opt/venv
COPY pyproject.toml constraints.txt ./
COPY images/requirements.py images/
RUN python images/requirements.py service > service.txt \
    && pip --python /opt/venv/bin/python install --constraint constraints.txt --requirement service.txt ${SERVICE_PACKAGES} \
    && find /opt/venv \( -path '*/pyarrow/include' -o -path '*/pyarrow/tests' -o -path '*/pandas/tests' \) -prune -exec rm -r {} +

FROM base AS wheel
COPY constraints.txt ./
RUN pip install --constraint constraints.txt setuptools
COPY . .
# The README is the package's description. It is not copied, so that a change of it does not rebuild this layer.
RUN touch README.md && pip wheel --no-deps --no-build-isolation --wheel-dir /dist .

# The root file system may be read-only: what is written at run time is in volumes and in /tmp.
FROM base AS runtime
RUN useradd --create-home --uid 1000 paceline \
    # An empty named volume gets the owner of the directory that it is mounted on.
    && install --directory --owner=paceline --group=paceline \
        /var/lib/paceline /var/lib/mlflow /checkpoints /run/ray-token
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    RAY_USAGE_STATS_ENABLED=0 \
    XDG_CACHE_HOME=/tmp/.cache \
    MPLCONFIGDIR=/tmp/.cache/matplotlib \
    PACELINE_DATA_DIR=/var/lib/paceline \
    PACELINE_STORAGE=/checkpoints
WORKDIR /home/paceline
COPY --from=packages /opt/venv /opt/venv

FROM runtime AS service
COPY --from=wheel /dist /dist
RUN pip --python /opt/venv/bin/python install --no-deps --no-index /dist/*.whl
USER paceline
EXPOSE 8000
CMD ["paceline", "serve"]

# On top of the same layers, so that a machine with both images has the common packages once.
FROM runtime AS node
ARG PIP_EXTRA_INDEX_URL
COPY pyproject.toml constraints.txt /build/
COPY images/requirements.py /build/images/
RUN python /build/images/requirements.py nodes > /build/nodes.txt \
    && pip --python /opt/venv/bin/python install --constraint /build/constraints.txt --requirement /build/nodes.txt
COPY --from=wheel /dist /dist
RUN pip --python /opt/venv/bin/python install --no-deps --no-index /dist/*.whl
USER paceline
CMD ["paceline", "agent"]
