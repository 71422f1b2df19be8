# Two images from one file:
#
#   docker build --target server  -t infeed-server .     all roles, with TensorFlow
#   docker build --target trainer -t infeed-trainer .    the light client and `infeed loadtest`
#
# Works with BuildKit and without it. Arguments: BASE_IMAGE, and for the labels VERSION, REVISION,
# SOURCE and CREATED.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# --- build: the wheel, and what it requires as two lists -------------------------------------
FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Packages are installed into this environment, which has no pip, and copied as a whole: neither
# pip's own files nor what is removed below is in a layer of the result.
RUN python -m venv --without-pip /opt/venv
WORKDIR /src
COPY requirements requirements
# The containers have exactly the versions that the tests ran with.
RUN python -m pip install --quiet --constraint requirements/dev.txt \
      hatchling hatch-fancy-pypi-readme editables
COPY pyproject.toml README.md LICENSE ./
COPY tools/requirements_of.py tools/
RUN mkdir /dist \
 && python tools/requirements_of.py pyproject.toml cli loadtest >/dist/trainer.txt \
 && python tools/requirements_of.py pyproject.toml server cli loadtest formats stores >/dist/server.txt
COPY client client
COPY server server
COPY plugins plugins
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .

# --- native: the JPEG decoder of the server ---------------------------------------------------
FROM build AS native
RUN apt-get update -qq \
 && apt-get install --yes -qq --no-install-recommends gcc libc6-dev >/dev/null
RUN python -m pip install --quiet --constraint requirements/dev.txt setuptools
COPY native native
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /native ./native

# --- code: infeed alone, for a last layer that is small ---------------------------------------
FROM build AS code
RUN python -m pip --python /opt/venv install --quiet --no-deps /dist/*.whl

FROM code AS server-code
COPY --from=native /native /native
RUN python -m pip --python /opt/venv install --quiet --no-deps /native/*.whl

# --- packages: before the code, so that a change of the code does not install TensorFlow again ---
FROM ${BASE_IMAGE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY --from=build /src/requirements/dev.txt /opt/constraints.txt

FROM packages AS trainer-packages
COPY --from=build /opt/venv /opt/venv
COPY --from=build /dist/trainer.txt /opt/
RUN python -m pip --python /opt/venv install --quiet --constraint /opt/constraints.txt \
      --requirement /opt/trainer.txt

FROM packages AS server-packages
RUN apt-get update -qq \
 && apt-get install --yes -qq --no-install-recommends binutils >/dev/null
COPY --from=build /opt/venv /opt/venv
COPY --from=build /dist/server.txt /opt/
# Of TensorFlow only what a compiler or debugger needs is removed: headers, libclang (of which it
# imports nothing), and the tables of symbols beside those of the dynamic linker.
RUN python -m pip --python /opt/venv install --quiet --constraint /opt/constraints.txt \
      --requirement /opt/server.txt \
 && packages=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && rm -rf "$packages/tensorflow/include" "$packages/clang" \
 && strip --strip-unneeded "$packages"/tensorflow/libtensorflow_*.so.*

# --- base: the user that runs either image ---------------------------------------------------
FROM ${BASE_IMAGE} AS base
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 infeed \
 && useradd --uid 10001 --gid 10001 --create-home --home-dir /var/lib/infeed \
      --shell /usr/sbin/nologin infeed
WORKDIR /var/lib/infeed
LABEL org.opencontainers.image.licenses="Apache-2.0"

# --- trainer: one epoch through infeed.connect, and a report; or `infeed loadtest` -----------
FROM base AS trainer
COPY --from=trainer-packages /opt/venv /opt/venv
COPY --from=code /opt/venv /opt/venv
COPY deploy/trainer.py /opt/infeed/
# By number, which Kubernetes' runAsNonRoot can check.
USER 10001:10001
CMD ["python", "/opt/infeed/trainer.py"]
ARG VERSION="" REVISION="" SOURCE="" CREATED=""
LABEL org.opencontainers.image.title="infeed-trainer" \
      org.opencontainers.image.description="The client of infeed: a check of a deployment, and its load test" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.created="${CREATED}"

# --- server ----------------------------------------------------------------------------------
FROM base AS server
COPY --from=server-packages /opt/venv /opt/venv
COPY --from=server-code /opt/venv /opt/venv
COPY deploy/healthcheck.py /opt/infeed/
# /tmp is the only folder that TensorFlow needs to write to; the root can be read-only.
ENV INFEED_CACHE_DIR=/tmp/infeed \
    INFEED_READY_URL=http://127.0.0.1:7471/readyz
USER 10001:10001
EXPOSE 7470 7471
# A role with another --http, or with --http-tls, sets INFEED_READY_URL.
HEALTHCHECK --interval=5s --timeout=10s --start-period=120s --retries=3 \
  CMD ["python", "-IS", "/opt/infeed/healthcheck.py"]
# --insecure: a container listens beyond loopback, and TLS is not set up here.
CMD ["infeed", "serve", "/config/pipelines.yaml", \
     "--listen", "0.0.0.0:7470", "--http", "0.0.0.0:7471", "--insecure"]
ARG VERSION="" REVISION="" SOURCE="" CREATED=""
LABEL org.opencontainers.image.title="infeed-server" \
      org.opencontainers.image.description="Ready-to-train batches over gRPC: all roles of infeed" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.created="${CREATED}"
