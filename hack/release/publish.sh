#!/usr/bin/env bash
# Pushes the files of assemble.sh to a registry, and signs them there: hack/release/publish.sh v1.2.3
#
#   REGISTRY     such as ghcr.io/merchant-operator; log in before
#   SIGN_FLAGS   flags of cosign sign; default: keyless, with the identity of the workflow
#   HELM_FLAGS   flags of helm push
#
# Everything is signed by digest, because a tag can change. A published version is never replaced; after a failure, a second run
# continues where the first one stopped. The digests are also written to the file GITHUB_OUTPUT.
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

# Prints the digest of a tag, or nothing if there is no such tag. Before the first tag, a registry may also respond DENIED; without
# the right to read a tag we cannot replace it either. Every other error ends this script.
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
# index.json has one entry, the index of the platforms.
ours=$(grep -o 'sha256:[0-9a-f]\{64\}' "$layout/index.json")
there=$(digest_of "$image:$version")
if [[ -z $there ]]; then
  echo "==> pushing $image:$version"
  crane push "$layout" "$image:$version"
elif [[ $there != "$ours" ]]; then
  echo "$image:$version is already published as $there; this is $ours. Published versions are not replaced." >&2
  exit 1
fi
image_digest=$(crane digest "$image:$version")

# helm push stores the time, so a second push of the same archive has another digest.
archive=$in/merchant-operator-$version.tgz
ours=$(sha256sum "$archive" | cut -d ' ' -f 1)
if [[ -z $(digest_of "$chart:$version") ]]; then
  echo "==> pushing $chart:$version"
  helm push "${plain[@]}" "$archive" "oci://${chart%/*}"
elif [[ $(crane manifest "$chart:$version") != *"sha256:$ours"* ]]; then
  echo "$chart:$version is already published with another archive than sha256:$ours. Published versions are not replaced." >&2
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
