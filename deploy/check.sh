#!/usr/bin/env bash
# Acceptance tests of the containers: builds both images, serves DATA_DIR, and exits with the status
# of the trainer's container.
#
#   DATA_DIR=/path/to/images deploy/check.sh             two servers, and a trainer that reads an
#                                                        epoch: 0 only if each sample came once
#   DATA_DIR=/path/to/images deploy/check.sh --service   the same with TensorFlow's data service
#   DATA_DIR=/path/to/images deploy/check.sh --loadtest  two servers, and `infeed loadtest`: 0 only
#                                                        if the audit is exact and the thresholds
#                                                        are kept; leaves the report in RESULTS_DIR
#   --host                                               on the host's network and loopback, also
#                                                        for the build; can be combined
#   --unix                                               one server, at a Unix socket; can be combined
#
# DATA_DIR contains images and a labels.csv (file,label). compose/docker-compose.yaml has the
# variables of the load test (TRAINERS, STEP_MS, DURATION, MIN_UTILISATION). With NO_BUILD=1
# the images are used as they are.
set -euo pipefail

: "${DATA_DIR:?set DATA_DIR to a folder of images with a labels.csv}"
# Compose would resolve a relative path against its own file.
DATA_DIR=$(realpath "$DATA_DIR")
export DATA_DIR
# Docker would create an empty folder for a missing path.
test -f "$DATA_DIR/labels.csv" || { echo "there is no $DATA_DIR/labels.csv" >&2 && exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RESULTS_DIR=$(realpath --canonicalize-missing "${RESULTS_DIR:-$root/build/loadtest}")
cd "$root/deploy/compose"

run=trainer project=infeed-check files=(-f docker-compose.yaml)
for option in "$@"; do
  case $option in
  --host) files+=(-f docker-compose.host.yaml) ;;
  --unix) files+=(-f docker-compose.unix.yaml) ;;
  --service) run=gateway-trainer project=infeed-check-service ;;
  --loadtest) run=loadtest project=infeed-loadtest ;;
  *) echo "unknown option $option; there are --host, --unix, --service and --loadtest" >&2 && exit 2 ;;
  esac
done
profiles=(--profile epoch --profile data-service)
# Lines that are not empty, without that of the columns' names, which a server accepts too.
SAMPLES=$(grep -c '[^[:space:]]' "$DATA_DIR/labels.csv")
names=,$(head -n 1 "$DATA_DIR/labels.csv" | LC_ALL=C tr -d '"[:space:]\357\273\277'),
if [[ ${names,,} == *,file,* && ${names,,} == *,label,* ]]; then SAMPLES=$((SAMPLES - 1)); fi
# Labels of the images.
VERSION=${VERSION-$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/client/infeed/__init__.py")}
REVISION=${REVISION-$(git -C "$root" rev-parse HEAD 2>/dev/null || true)}
export SAMPLES VERSION REVISION

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose --project-name "$project" "${files[@]}" "${profiles[@]}" "$@"
  else
    docker-compose --project-name "$project" "${files[@]}" "${profiles[@]}" "$@"
  fi
}

finish() {
  code=$?
  # If a server does not become ready, Compose does not show its log.
  if [ $code -ne 0 ]; then compose logs --no-color || true; fi
  compose down --timeout 30 --volumes
  exit $code
}

if [ -z "${NO_BUILD-}" ]; then
  # The images, which all services share.
  if [ $run = gateway-trainer ]; then compose build dispatcher gateway-trainer; else compose build server1 $run; fi
fi
trap finish EXIT
# Not --abort-on-container-exit: a worker that exits is restarted, and one server is enough.
compose up --no-build --detach $run
compose logs --follow --no-color $run
container=$(compose ps --all --quiet $run)
code=$(docker wait "$container")
if [ $run = loadtest ]; then
  mkdir -p "$RESULTS_DIR"
  for file in report.html result.json; do
    # There is none after a wrong option, whose status is that of the trainer's container.
    docker cp "$container:/var/lib/infeed/$file" "$RESULTS_DIR/$file" || true
  done
  echo "report: $RESULTS_DIR/report.html"
fi
exit "$code"
