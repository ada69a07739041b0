#!/usr/bin/env bash
# Makes all files of a release in dist/release. It needs no credentials: hack/release/assemble.sh v1.2.3
#
#   image.tar                    the image for all platforms
#   sbom-<platform>.spdx.json    the contents of the image
#   merchant-operator-1.2.3.tgz  the chart
#   install.yaml                 config/default, for installing without Helm
#   kubectl-merchant_*.tar.gz    the plugin of kubectl, for each platform
#   merchant.yaml                its manifest for krew
#   notes.md                     the version's section of CHANGELOG.md
#   SHA256SUMS                   of the files to download
#
# hack/image makes the image without docker: the same commit and the same Go version give the same digest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:?usage: $0 v1.2.3}
image=${IMAGE:-ghcr.io/merchant-operator/merchant-operator}
out=dist/release

if [[ -n $(git status --porcelain) ]]; then
  echo "Commit your changes first; a release is made from a commit." >&2
  exit 1
fi
# Semantic versions without build metadata: a plus sign cannot be in the tag of an image.
number='(0|[1-9][0-9]*)'
if ! [[ $tag =~ ^v($number\.$number\.$number(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?)$ ]]; then
  echo "The tag $tag does not have the form v1.2.3 or v1.2.3-rc.1" >&2
  exit 1
fi
version=${BASH_REMATCH[1]}

# The section below the version's heading, without the link definitions at the end of the page.
notes=$(awk -v heading="## [$version] - " '
  found && /^## \[/ { exit }
  found && !/^\[[^]]+\]: / && (NF || started) { started = 1; print }
  index($0, heading) == 1 && substr($0, length(heading) + 1) ~ /^[0-9]+-[0-9]+-[0-9]+$/ { found = 1 }' CHANGELOG.md)
if [[ -z $notes ]]; then
  echo "CHANGELOG.md has no section $version; below [Unreleased] add the heading ## [$version] - $(date +%F)" >&2
  exit 1
fi

rm -rf "$out"
mkdir -p "$out" bin
printf '%s\n' "$notes" >"$out/notes.md"

# Helm stores the current time in its archive. With the time of the commit, the same commit gives the same archive.
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
go tool -modfile=go.tools.mod helm package charts/merchant-operator --version "$version" --app-version "$version" -d "$unpacked"
tar -xmzf "$unpacked/merchant-operator-$version.tgz" -C "$unpacked"
tar --sort=name --mtime="$(git log -1 --format=%cI)" --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r,a+X \
  -C "$unpacked" -cf - merchant-operator | gzip -n9 >"$out/merchant-operator-$version.tgz"

make build-installer IMG="$image:$version"
mv dist/install.yaml "$out/"
go -C hack/image build -o "$PWD/bin/image" .
bin/image -name "$image:$version" -version "$tag" -output "$out/image.tar"
bin/image sbom "$version" "$out/image.tar" "$out"
hack/release/plugin.sh "$tag" "$out"
(cd "$out" && sha256sum ./*.tgz ./*.tar.gz install.yaml merchant.yaml ./*.spdx.json | sed 's| \./| |' >SHA256SUMS)

echo "==> $out:"
ls -l "$out"
