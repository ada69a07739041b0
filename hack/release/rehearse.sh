#!/usr/bin/env bash
# `make release-rehearsal`: releases the last commit as v0.0.0-rehearsal from a clone, into a temporary registry on this machine,
# signed with a temporary key, and verifies the result. Needs Go and git.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=v0.0.0-rehearsal
step() { printf '==> %s\n' "$*"; }
work=$(mktemp -d)
registry_pid=
stop() {
  [[ -z $registry_pid ]] || kill "$registry_pid" || true
  rm -rf "$work"
}
trap stop EXIT

step "building crane and cosign (the first time takes minutes)"
mkdir -p bin/release
go -C hack/release/tools build -o "$PWD/bin/release/" tool
PATH=$PWD/bin/release:$PATH

step "making a clone with a tag and notes"
git clone -q . "$work/source"
cd "$work/source"
mkdir bin
ln -s "$OLDPWD/bin/release" bin/release
if hack/release/assemble.sh "$tag" 2>"$work/error"; then
  echo "A version without notes was assembled." >&2
  exit 1
fi
tail -1 "$work/error"
sed -i "s/^## \[Unreleased\]$/&\n\n## [${tag#v}] - $(date +%F)/" CHANGELOG.md
git -c user.name=rehearsal -c user.email=rehearsal@example.invalid commit -q -am "Rehearse a release"
git tag "$tag"

step "assembling, twice"
hack/release/assemble.sh "$tag" >/dev/null
sha256sum dist/release/* >"$work/first"
hack/release/assemble.sh "$tag"
sha256sum --check --quiet "$work/first"

step "publishing, twice"
crane registry serve --address 127.0.0.1:0 >"$work/registry.log" 2>&1 &
registry_pid=$!
for _ in {1..100}; do
  port=$(grep -o 'on port [0-9]*' "$work/registry.log" | grep -o '[0-9]*') && break
  sleep 0.1
done
export REGISTRY=127.0.0.1:$port/merchant-operator HELM_FLAGS=--plain-http
export COSIGN_PASSWORD='' SIGN_FLAGS="--key $work/cosign.key --tlog-upload=false --use-signing-config=false"
(cd "$work" && cosign generate-key-pair)
export GITHUB_OUTPUT=$work/output
hack/release/publish.sh "$tag"
hack/release/publish.sh "$tag" >/dev/null
[[ $(sort -u "$work/output" | wc -l) == 2 ]]

step "verifying"
image=$REGISTRY/merchant-operator:${tag#v}
chart=$REGISTRY/charts/merchant-operator:${tag#v}
verify=(--key "$work/cosign.pub" --insecure-ignore-tlog=true)
cosign verify "${verify[@]}" "$image" >/dev/null
cosign verify "${verify[@]}" "$chart" >/dev/null
for platform in linux/amd64 linux/arm64; do
  one=$REGISTRY/merchant-operator@$(crane digest --platform "$platform" "$image")
  cosign verify "${verify[@]}" "$one" >/dev/null
  cosign verify-attestation "${verify[@]}" --type spdxjson "$one" >/dev/null
done
go tool -modfile=go.tools.mod helm pull --plain-http -d "$work" "oci://${chart%:*}" --version "${tag#v}"
cmp "$work/merchant-operator-${tag#v}.tgz" "dist/release/merchant-operator-${tag#v}.tgz"

step "refusing to replace it"
echo >>charts/merchant-operator/README.md
echo "// changed" >>main.go
git -c user.name=rehearsal -c user.email=rehearsal@example.invalid commit -q -am "Change it"
hack/release/assemble.sh "$tag" >/dev/null
if hack/release/publish.sh "$tag" 2>"$work/error"; then
  echo "A released version was replaced." >&2
  exit 1
fi
tail -1 "$work/error"
step "done: $image and $chart were built, pushed, signed, attested, verified, and not replaced"
