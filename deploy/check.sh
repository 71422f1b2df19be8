#!/usr/bin/env bash
# The acceptance of the containers: builds both images, serves DATA_DIR from one container, reads
# an epoch in another, and ends with the trainer's exit code: 0 only when every sample came once.
#
#   DATA_DIR=/path/to/images deploy/check.sh           on the engine's bridge network
#   DATA_DIR=/path/to/images deploy/check.sh --host    on the host's network and loopback, also
#                                                      for the build; GRPC_PORT and HTTP_PORT
#                                                      choose ports
#
# DATA_DIR holds images and a labels.csv (file,label).
set -euo pipefail

: "${DATA_DIR:?set DATA_DIR to a folder of images with a labels.csv}"
# Compose would look for a relative path beside its file.
DATA_DIR=$(realpath "$DATA_DIR")
export DATA_DIR
# Docker would make an empty folder of a path that leads nowhere.
test -f "$DATA_DIR/labels.csv" || { echo "there is no $DATA_DIR/labels.csv" >&2 && exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")"

files=(-f docker-compose.yaml)
case ${1:-} in
--host) files+=(-f docker-compose.host.yaml) ;;
"") ;;
*) echo "unknown option $1; there is --host" >&2 && exit 2 ;;
esac

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose --project-name infeed-check "${files[@]}" "$@"
  else
    docker-compose --project-name infeed-check "${files[@]}" "$@"
  fi
}

finish() {
  code=$?
  # When the server never gets ready, Compose says so and shows nothing of it.
  if [ $code -ne 0 ]; then compose logs --no-color server || true; fi
  compose down --timeout 10
  exit $code
}

compose build
trap finish EXIT
compose up --no-build --abort-on-container-exit --exit-code-from trainer
