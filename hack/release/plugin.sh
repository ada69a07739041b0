#!/usr/bin/env bash
# Makes the archives of kubectl merchant and its manifest for krew: hack/release/plugin.sh v1.2.3 DIRECTORY [PLATFORM...]
#
#   kubectl-merchant_v1.2.3_<os>_<arch>.tar.gz   the plugin, what completes its words, the licence
#   merchant.yaml                                the manifest, with the checksums of the archives
#
# The same commit and the same Go version give the same archives.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:?usage: $0 v1.2.3 DIRECTORY [PLATFORM...]}
out=${2:?usage: $0 v1.2.3 DIRECTORY [PLATFORM...]}
platforms=("${@:3}")
((${#platforms[@]})) || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)
home=https://github.com/merchant-operator/merchant-operator

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/merchant.yaml" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: merchant
spec:
  version: $tag
  homepage: $home
  shortDescription: Manage merchants, their API keys and webhooks
  description: |
    Onboard merchants of merchant-operator, issue and rotate their API keys, find out why the
    API refuses a key, and send webhook events again that could not be delivered.
  platforms:
EOF
for platform in "${platforms[@]}"; do
  os=${platform%/*} arch=${platform#*/} program=kubectl-merchant
  [[ $os != windows ]] || program+=.exe
  echo "==> building $program for $platform"
  mkdir "$work/files"
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$tag" -o "$work/files/$program" .
  cp LICENSE "$work/files/"
  if [[ $os != windows ]]; then
    # kubectl runs it for the tab key.
    # shellcheck disable=SC2016 # for the script
    printf '%s\n' '#!/usr/bin/env sh' 'exec kubectl-merchant __complete "$@"' >"$work/files/kubectl_complete-merchant"
    chmod +x "$work/files/kubectl_complete-merchant"
  fi
  archive=kubectl-merchant_${tag}_${os}_$arch.tar.gz
  tar --sort=name --mtime="$(git log -1 --format=%cI)" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$work/files" -cf - . | gzip -n9 >"$out/$archive"
  rm -r "$work/files"
  cat >>"$work/merchant.yaml" <<EOF
  - selector: {matchLabels: {os: $os, arch: $arch}}
    uri: $home/releases/download/$tag/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d ' ' -f 1)
    bin: $program
EOF
done
mv "$work/merchant.yaml" "$out/"
