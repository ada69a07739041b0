#!/usr/bin/env bash
# Compiles what the tests of packages import, and prints how far it is: `go test` prints nothing until it has done that.
#
#   hack/compile.sh [-C DIRECTORY] [-race] PACKAGE...
set -euo pipefail

directory=.
if [[ ${1:-} == -C ]]; then directory=$2; shift 2; fi
race=()
if [[ ${1:-} == -race ]]; then race=(-race); shift; fi

list() { go -C "$directory" list "${race[@]}" -deps -test -f "{{if and (not .ForTest) (ne .Name \"main\") .GoFiles $1}}{{.ImportPath}}{{end}}" "${@:2}"; }

total=$(list true "$@" | wc -l)
echo "==> compiling $total packages, as far as they have changed"
# shellcheck disable=SC2046 # one argument each
go -C "$directory" build -v "${race[@]}" $(list '(not .Standard)' "$@") 2>&1 | awk -v total="$total" '
  /^go: downloading / { if (++fetched % 50 == 0) { printf "==> fetched %d modules\n", fetched; fflush() }; next }
  / / { print; next }
  ++compiled % 50 == 0 { printf "==> compiled %d of %d packages\n", compiled, total; fflush() }'
