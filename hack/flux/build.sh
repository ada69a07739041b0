#!/usr/bin/env bash
# Prints a directory that holds Flux's kustomize-controller and, in crds/, the CustomResourceDefinitions it needs. Builds them
# first if need be. Progress goes to stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

flux=$(../build-once.sh . github.com/fluxcd/kustomize-controller kustomize-controller=github.com/fluxcd/kustomize-controller)

# crds MODULE FILE ...: copies CustomResourceDefinitions out of a module. Only their modules have them, not the modules of the
# Go types that kustomize-controller requires.
crds() {
  local module=$1 directory
  shift
  directory=$(GOWORK=off go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  install -m 644 "${@/#/$directory/config/crd/bases/}" "$unfinished"
}

if [[ ! -d $flux/crds ]]; then
  unfinished=$(mktemp -d "$flux/.crds.XXXXXX")
  trap 'rm -rf "$unfinished"' EXIT
  sources=$(awk '$1 == "github.com/fluxcd/source-controller/api" { print $2 }' go.mod)
  crds github.com/fluxcd/kustomize-controller kustomize.toolkit.fluxcd.io_kustomizations.yaml
  crds "github.com/fluxcd/source-controller@$sources" \
    source.toolkit.fluxcd.io_{buckets,externalartifacts,gitrepositories,ocirepositories}.yaml
  chmod 755 "$unfinished"
  [[ -d $flux/crds ]] || mv "$unfinished" "$flux/crds"
fi
echo "$flux"
