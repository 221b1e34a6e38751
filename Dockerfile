# One image for all components: service, agent, MLflow server, Ray head and Ray workers; see docker-compose.yml.
FROM python:3.11-slim-bookworm

# pip's own variable: an index of torch's CPU builds (--build-arg PIP_EXTRA_INDEX_URL=…) makes the image far smaller.
ARG PIP_EXTRA_INDEX_URL

ENV PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    MLFLOW_DISABLE_TELEMETRY=true

# Dependencies first: this layer of several gigabytes changes only with the pinned versions.
WORKDIR /opt/paceline
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt 'setuptools>=77'

COPY . .
# The README is the package's description. It is not copied, so that a change of it does not rebuild this layer.
RUN touch README.md && pip install --no-deps --no-build-isolation .

# An empty named volume gets the owner of the directory that it is mounted on.
RUN useradd --create-home --uid 1000 paceline \
    && install --directory --owner=paceline --group=paceline \
        /var/lib/paceline /var/lib/mlflow /checkpoints /run/ray-token
USER paceline
WORKDIR /home/paceline
ENV PACELINE_DATA_DIR=/var/lib/paceline \
    PACELINE_STORAGE=/checkpoints
EXPOSE 8000
CMD ["paceline", "serve"]
