#!/usr/bin/env bash
# Acceptance test of the containers: builds both images, serves DATA_DIR, reads an epoch in the
# trainer's container, and exits with its status: 0 only if every sample is delivered once.
#
#   DATA_DIR=/path/to/images deploy/check.sh             one server, on a bridge network
#   DATA_DIR=/path/to/images deploy/check.sh --host      on the host's network and loopback, also
#                                                        for the build; GRPC_PORT and HTTP_PORT
#                                                        set the ports
#   DATA_DIR=/path/to/images deploy/check.sh --service   TensorFlow's data service behind a gateway;
#                                                        can be combined with --host; also
#                                                        DISPATCHER_PORT, DISPATCHER_HTTP_PORT
#
# DATA_DIR contains images and a labels.csv (file,label).
set -euo pipefail

: "${DATA_DIR:?set DATA_DIR to a folder of images with a labels.csv}"
# Compose would resolve a relative path against its own file.
DATA_DIR=$(realpath "$DATA_DIR")
export DATA_DIR
# Docker would create an empty folder for a missing path.
test -f "$DATA_DIR/labels.csv" || { echo "there is no $DATA_DIR/labels.csv" >&2 && exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")"

shape="" override="" project=infeed-check servers=(server)
for option in "$@"; do
  case $option in
  --host) override=.host ;;
  --service) shape=.service project=infeed-check-service servers=(dispatcher worker gateway) ;;
  *) echo "unknown option $option; there are --host and --service" >&2 && exit 2 ;;
  esac
done
files=(-f "docker-compose$shape.yaml" ${override:+-f "docker-compose$shape$override.yaml"})
SAMPLES=$(grep -c . "$DATA_DIR/labels.csv")
export SAMPLES

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose --project-name "$project" "${files[@]}" "$@"
  else
    docker-compose --project-name "$project" "${files[@]}" "$@"
  fi
}

finish() {
  code=$?
  # If a server does not become ready, Compose does not show its log.
  if [ $code -ne 0 ]; then compose logs --no-color "${servers[@]}" || true; fi
  compose down --timeout 10 --volumes
  exit $code
}

compose build
trap finish EXIT
if [ -z "$shape" ]; then
  compose up --no-build --abort-on-container-exit --exit-code-from trainer
else
  # Not --abort-on-container-exit: a worker that exits is restarted.
  compose up --no-build --detach
  compose logs --follow --no-color trainer
  exit "$(docker wait "$(compose ps --all --quiet trainer)")"
fi
