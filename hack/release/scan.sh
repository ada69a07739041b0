#!/usr/bin/env bash
# Fails if a program in the image of a release was compiled with an older Go than go.mod names, or reaches a known vulnerability of Go or of a
# dependency: hack/release/scan.sh dist/release
set -euo pipefail
directory=$(realpath "${1:?usage: $0 DIRECTORY}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT

go -C hack/image run . unpack "$directory/image.tar" "$programs"
want=$(sed -n 's/^toolchain //p' go.mod)
for program in "$programs"/*; do
  read -r _ have < <(go version "$program")
  echo "==> ${program##*/} was compiled with $have"
  if [[ $(printf '%s\n' "$want" "$have" | sort -V | tail -n 1) != "$have" ]]; then
    echo "It needs $want or later, as go.mod says." >&2
    exit 1
  fi
  go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -mode=binary "$program"
done
