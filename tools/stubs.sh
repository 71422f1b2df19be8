#!/usr/bin/env bash
# Generates the Python stubs of proto/ with the grpcio-tools of $PYTHON (default: python3): messages
# only. Both ends implement the service themselves, and the light client has no grpcio.
#
#   tools/stubs.sh write    writes the stubs to client/
#   tools/stubs.sh check    fails with a diff if the stubs in client/ are out of date
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
package=infeed/v1

generate() { # into folder $1
  "$python" -m grpc_tools.protoc -I proto --python_out="$1" --pyi_out="$1" proto/$package/*.proto
}

check() {
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  generate "$fresh"
  # The excluded files are not generated.
  if ! diff -ru -x __init__.py -x __pycache__ -x py.typed "client/$package" "$fresh/$package"; then
    echo "client/$package does not match proto/; run: make proto" >&2
    exit 1
  fi
}

case ${1:-} in
write) rm -f client/$package/*_pb2.py client/$package/*_pb2.pyi && generate client ;;
check) check ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
