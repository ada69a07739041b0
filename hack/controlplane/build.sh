#!/usr/bin/env bash
# Prints a directory that holds kube-apiserver, etcd and kubectl, building them first if need be:
#
#   export KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
#
# Progress goes to stderr. A KUBEBUILDER_ASSETS that is already set is checked and used as it is, and so is what setup-envtest
# has installed, if it has the same minor version.
set -euo pipefail
# The caller's directory, for a relative KUBEBUILDER_ASSETS.
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf 'controlplane: %s\n' "$*" >&2; }

# Prints the first program that a directory lacks.
missing() { for name in kube-apiserver etcd kubectl; do [[ -x $1/$name ]] || { echo "$name"; return; }; done; }

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  assets=$(cd "$called_from" && cd "$KUBEBUILDER_ASSETS" && pwd) || exit 1
  name=$(missing "$assets")
  if [[ -n $name ]]; then
    say "KUBEBUILDER_ASSETS=$assets has no executable $name; put one there, or unset the variable to build it"
    exit 1
  fi
  echo "$assets"
  exit
fi

# Where setup-envtest installs by default: 1.36.2-linux-amd64 and such.
installed=${XDG_DATA_HOME:-$HOME/.local/share}/kubebuilder-envtest
[[ $(uname) != Darwin ]] || installed="$HOME/Library/Application Support/io.kubebuilder.envtest"
minor=$(awk '$1 == "k8s.io/kubernetes" { split(substr($2, 2), part, "."); print part[1] "." part[2] }' go.mod)
newest=$(printf '%s\n' "$installed/k8s/$minor."*-"$(go env GOHOSTOS)-$(go env GOHOSTARCH)" | sort -V | tail -1)
if [[ -d $newest && -z $(missing "$newest") ]]; then
  say "using $newest, which setup-envtest has installed"
  echo "$newest"
  exit
fi
exec ../build-once.sh . k8s.io/kubernetes \
  etcd=go.etcd.io/etcd/server/v3 \
  kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver \
  kubectl=k8s.io/kubernetes/cmd/kubectl
