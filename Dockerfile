# Two images from one file:
#
#   docker build --target server  -t infeed-server .     the server, with TensorFlow
#   docker build --target trainer -t infeed-trainer .    the light client: numpy, h2, protobuf
#
# Works with BuildKit and without it.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# --- build: the wheel, and what it requires as two lists -------------------------------------
FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements requirements
# The containers have exactly the versions that the tests ran with.
RUN python -m pip install --quiet --constraint requirements/dev.txt hatchling editables
COPY pyproject.toml README.md LICENSE ./
COPY tools/requirements_of.py tools/
RUN mkdir /dist \
 && python tools/requirements_of.py pyproject.toml >/dist/light.txt \
 && python tools/requirements_of.py pyproject.toml server >/dist/server.txt
COPY client client
COPY server server
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .

# --- base: the user that runs either image ---------------------------------------------------
FROM ${BASE_IMAGE} AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home --home-dir /var/lib/infeed --shell /usr/sbin/nologin infeed
COPY --from=build /src/requirements/dev.txt /opt/infeed/constraints.txt
WORKDIR /var/lib/infeed

# --- trainer: one epoch through infeed.connect, and a report ---------------------------------
FROM base AS trainer
COPY --from=build /dist/light.txt /opt/infeed/
RUN python -m pip install --quiet --constraint /opt/infeed/constraints.txt \
      --requirement /opt/infeed/light.txt
COPY --from=build /dist/*.whl /opt/infeed/
RUN python -m pip install --quiet --no-deps /opt/infeed/*.whl
COPY deploy/trainer.py /opt/infeed/
USER infeed
CMD ["python", "/opt/infeed/trainer.py"]

# --- server ----------------------------------------------------------------------------------
FROM base AS server
# Before the code, so that a change of the code does not install TensorFlow again.
COPY --from=build /dist/server.txt /opt/infeed/
RUN python -m pip install --quiet --constraint /opt/infeed/constraints.txt \
      --requirement /opt/infeed/server.txt
COPY --from=build /dist/*.whl /opt/infeed/
RUN python -m pip install --quiet --no-deps /opt/infeed/*.whl
USER infeed
EXPOSE 7470 7471
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7471/readyz', timeout=2)"]
# --insecure: a container listens beyond loopback, and TLS is not set up here.
CMD ["infeed", "serve", "/config/pipelines.yaml", \
     "--listen", "0.0.0.0:7470", "--http", "0.0.0.0:7471", "--insecure"]
