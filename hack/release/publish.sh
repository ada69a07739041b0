#!/usr/bin/env bash
# Sends what assemble.sh made to a registry, and signs it there: hack/release/publish.sh v1.2.3
#
#   REGISTRY     where to, such as ghcr.io/merchant-operator; log in before
#   SIGN_FLAGS   how cosign signs; nothing: keyless, as the workload that runs this
#   HELM_FLAGS   how helm pushes and pulls
#
# Everything is signed by digest: a tag may point elsewhere a moment later. A version that is there is never replaced,
# while running this again after it failed half way goes on where it stopped. With GITHUB_OUTPUT, the digests are written there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:?usage: $0 v1.2.3}
: "${REGISTRY:?}"
read -ra sign <<<"${SIGN_FLAGS:-}"
read -ra plain <<<"${HELM_FLAGS:-}"
version=${tag#v}
in=dist/release
image=$REGISTRY/merchant-operator
chart=$REGISTRY/charts/merchant-operator

mkdir -p bin/release
[[ -x bin/release/cosign ]] || go -C hack/release/tools build -o "$PWD/bin/release/" tool
PATH=$PWD/bin/release:$PATH
helm() { go tool -modfile=go.tools.mod helm "$@"; }

# Prints the digest of a tag; nothing when there is no such tag, which a registry may also put as DENIED, before there is
# any tag: who may not read it cannot replace it either. Anything else that a registry says ends this.
digest_of() {
  local problem
  if problem=$(crane digest "$1" 2>&1); then
    echo "$problem"
  elif [[ $problem != *MANIFEST_UNKNOWN* && $problem != *NAME_UNKNOWN* && $problem != *DENIED* ]]; then
    printf '%s\n' "$problem" >&2
    return 1
  fi
}

layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -xf "$in/image.tar" -C "$layout"
# index.json names one thing, the index of the platforms.
ours=$(grep -o 'sha256:[0-9a-f]\{64\}' "$layout/index.json")
there=$(digest_of "$image:$version")
if [[ -z $there ]]; then
  echo "==> pushing $image:$version"
  crane push "$layout" "$image:$version"
elif [[ $there != "$ours" ]]; then
  echo "$image:$version is released as $there, and this is $ours. Released versions do not change." >&2
  exit 1
fi
image_digest=$(crane digest "$image:$version")

# What helm pushes is dated, so another push of the same archive has another digest.
archive=$in/merchant-operator-$version.tgz
ours=$(sha256sum "$archive" | cut -d ' ' -f 1)
if [[ -z $(digest_of "$chart:$version") ]]; then
  echo "==> pushing $chart:$version"
  helm push "${plain[@]}" "$archive" "oci://${chart%/*}"
elif [[ $(crane manifest "$chart:$version") != *"sha256:$ours"* ]]; then
  echo "$chart:$version is released, and has not this archive (sha256:$ours). Released versions do not change." >&2
  exit 1
fi
chart_digest=$(crane digest "$chart:$version")

echo "==> signing"
cosign sign --yes --recursive "${sign[@]}" "$image@$image_digest"
cosign sign --yes "${sign[@]}" "$chart@$chart_digest"
for sbom in "$in"/sbom-*.spdx.json; do
  platform=${sbom##*/sbom-}
  platform=${platform%.spdx.json}
  cosign attest --yes "${sign[@]}" --type spdxjson --predicate "$sbom" \
    "$image@$(crane digest --platform "${platform/-//}" "$image@$image_digest")"
done

printf '%s\n' "image-digest=$image_digest" "chart-digest=$chart_digest" | tee -a "${GITHUB_OUTPUT:-/dev/null}"
