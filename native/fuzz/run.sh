#!/usr/bin/env bash
# run.sh SECONDS FOLDER: decodes changed JPEGs of a folder under sanitizers, by libFuzzer where clang has it.
set -euo pipefail
seconds=$1 folder=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
built=$(mktemp --directory)
trap 'rm -rf "$built"' EXIT
sources=(src/[!b]*.c fuzz/target.c)  # not batch.c: one thread
flags=(-std=gnu11 -g -O1 -fwrapv -ffp-contract=off -mavx2 -mbmi2)
checks=(-fsanitize=address,undefined -fno-sanitize-recover=all)
if clang -fsanitize=fuzzer "${flags[@]}" "${checks[@]}" "${sources[@]}" -lm -o "$built/fuzz" 2>/dev/null; then
  mkdir "$built/found"
  "$built/fuzz" -max_total_time="$seconds" -max_len=65536 -timeout=10 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="${TMPDIR:-/tmp}/infeed-jpeg-" "$built/found" "$folder"
else
  ${CC:-cc} "${flags[@]}" "${checks[@]}" "${sources[@]}" fuzz/mutate.c -lm -o "$built/fuzz"
  "$built/fuzz" "$seconds" "$RANDOM" "$folder"/*
fi
