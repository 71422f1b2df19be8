#!/usr/bin/env bash
# Start-up script of a TPU VM: sizes the server of this host, and installs it as a service.
#
#   sudo IMAGE=REGISTRY/infeed-server:TAG DATA=/mnt/data TRAINER=alice deploy/tpu-vm/startup.sh
#   deploy/tpu-vm/startup.sh --print      only prints the settings
#
# Run it again after a change of the pipelines or of the service. docs/kubernetes.md has the arithmetic.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- settings ---
IMAGE=${IMAGE:-infeed-server:latest}
PIPELINES=${PIPELINES:-$here/../pipelines.yaml}
DATA=${DATA:-/mnt/data}            # mounted as /data; with object storage any empty folder
TRAINER=${TRAINER:-root}           # the user that runs the trainer
TRAINER_CORES=${TRAINER_CORES:-24} # for the training loop, its threads and the runtime
TRAINER_GIB=${TRAINER_GIB:-64}     # the trainer's memory without the pre-mapped buffer
SYSTEM_GIB=${SYSTEM_GIB:-8}        # kernel, page cache of the data, container engine
# The TPU runtime pins this memory of the host. Its default, in bytes.
TPU_PREMAPPED_BUFFER_SIZE=${TPU_PREMAPPED_BUFFER_SIZE:-4294967296}

# --- size of this host; the variables are for another one ---
HOST_CORES=${HOST_CORES:-$(nproc)}
HOST_KIB=${HOST_KIB:-$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)}

# settings: prints what is left for the server, as the service's environment.
settings() {
  local cores memory_mib user
  cores=$((HOST_CORES - TRAINER_CORES))
  memory_mib=$((HOST_KIB / 1024 - TPU_PREMAPPED_BUFFER_SIZE / 1048576 - (TRAINER_GIB + SYSTEM_GIB) * 1024))
  if ((cores < 1)); then
    echo "startup.sh: no core is left: $HOST_CORES of the host, $TRAINER_CORES for the trainer; lower TRAINER_CORES" >&2
    return 1
  fi
  if ((memory_mib < 2048)); then
    echo "startup.sh: $memory_mib MiB are left, a server needs 2048: $((HOST_KIB / 1024)) MiB of the host less" \
      "$((TPU_PREMAPPED_BUFFER_SIZE / 1048576)) MiB pre-mapped, $TRAINER_GIB GiB for the trainer and" \
      "$SYSTEM_GIB GiB for the system; lower TRAINER_GIB" >&2
    return 1
  fi
  if ! user=$(id -u "$TRAINER" 2>&1):$(id -g "$TRAINER" 2>&1); then
    echo "startup.sh: no user $TRAINER; set TRAINER to the user that runs the trainer" >&2
    return 1
  fi
  cat <<EOF
INFEED_IMAGE=$IMAGE
INFEED_DATA=$DATA
INFEED_USER=$user
INFEED_CPUS=$cores
INFEED_MEMORY=${memory_mib}m
EOF
}

if [[ ${1-} == --print ]]; then
  settings
  exit
fi

lines=$(settings)
if [[ ! -d $DATA ]]; then
  echo "startup.sh: no folder $DATA; set DATA to the folder of the data" >&2
  exit 1
fi
if [[ ! -f $PIPELINES ]]; then
  echo "startup.sh: no file $PIPELINES; set PIPELINES to the file of the pipelines" >&2
  exit 1
fi
install -d -m 0755 /etc/infeed
install -m 0644 "$PIPELINES" /etc/infeed/pipelines.yaml
install -m 0644 "$here/infeed-server.service" /etc/systemd/system/infeed-server.service
printf '%s\n' "$lines" >/etc/infeed/server.env
systemctl daemon-reload
systemctl enable infeed-server
systemctl restart infeed-server
echo "$lines"
echo "the trainer connects to unix:/run/infeed/server.sock; the state: curl http://127.0.0.1:7471/readyz"
