#!/usr/bin/env bash
# Makes all files of a release in dist/release, with no rights to anything: hack/release/assemble.sh v1.2.3
#
#   image.tar                    the image for all platforms
#   sbom-<platform>.spdx.json    what is in it
#   merchant-operator-1.2.3.tgz  the chart
#   install.yaml                 config/default, for those who use no Helm
#   notes.md                     the version's part of CHANGELOG.md
#   SHA256SUMS                   of what is downloaded as a file
#
# The image is put together by hack/image without docker: from the same commit with the same Go comes the same digest,
# whoever builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:?usage: $0 v1.2.3}
image=${IMAGE:-ghcr.io/merchant-operator/merchant-operator}
out=dist/release

if [[ -n $(git status --porcelain) ]]; then
  echo "There are changes that are not committed; a release is made of a commit." >&2
  exit 1
fi
mkdir -p bin
go build -o bin/release-parts ./hack/release
version=$(bin/release-parts version "$tag")

rm -rf "$out"
mkdir -p "$out"
bin/release-parts notes "$tag" >"$out/notes.md"
bin/release-parts chart "$tag" "$out"
make build-installer IMG="$image:$version"
mv dist/install.yaml "$out/"
go run ./hack/image -builder none -name "$image:$version" -version "$tag" -output "$out/image.tar"
bin/release-parts sbom "$tag" "$out/image.tar" "$out"
(cd "$out" && sha256sum ./*.tgz install.yaml ./*.spdx.json | sed 's| \./| |' >SHA256SUMS)

echo "==> $out:"
ls -l "$out"
