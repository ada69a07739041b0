#!/usr/bin/env bash
# Prints a directory that holds kube-apiserver, etcd and kubectl, building them first if need be.
#
#   export KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
#
# Only the directory goes to stdout; progress goes to stderr. A KUBEBUILDER_ASSETS that is already set is
# checked and used as it is, and so is what setup-envtest has installed, if it is of the same minor version.
# Built binaries are kept outside the tree, one directory per set of sources, so that clones share them:
# $XDG_CACHE_HOME (or ~/.cache)/merchant-operator/controlplane.
set -euo pipefail
# Where the caller stands, so that a relative KUBEBUILDER_ASSETS still means what they meant.
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

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly
unset GOOS GOARCH # these run here, whatever is being cross-compiled

version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
IFS=. read -r major minor _ <<<"${version#v}"
stamp=k8s.io/component-base/version
ldflags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"

sources=$({ cat go.mod go.sum; go env GOOS GOARCH; echo "$ldflags"; } | git hash-object --stdin)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/merchant-operator/controlplane
assets=$cache/$version-${sources:0:12}

if [[ ! -d $assets ]]; then
  # Where setup-envtest installs by default: 1.36.2-linux-amd64 and such.
  installed=${XDG_DATA_HOME:-$HOME/.local/share}/kubebuilder-envtest
  [[ $(uname) != Darwin ]] || installed="$HOME/Library/Application Support/io.kubebuilder.envtest"
  newest=$(printf '%s\n' "$installed/k8s/$major.$minor."*-"$(go env GOOS)-$(go env GOARCH)" | sort -V | tail -1)
  if [[ -d $newest && -z $(missing "$newest") ]]; then
    say "using $newest, which setup-envtest has installed"
    echo "$newest"
    exit
  fi
  mkdir -p "$cache"
  # One clone builds, the others wait. Where flock is missing (macOS) both build, and the first to finish wins.
  if command -v flock >/dev/null; then
    exec 9>"$cache/.lock"
    flock --nonblock 9 || { say "another build is running; waiting for it"; flock 9; }
    rm -rf "$cache"/.building.* # left by a build that was killed
  fi
fi
if [[ -d $assets ]]; then
  echo "$assets"
  exit
fi

unfinished=$(mktemp -d "$cache/.building.XXXXXX")
trap 'rm -rf "$unfinished"' EXIT

# Turns what `go build -v` says into a running count, and passes everything else on.
show_progress() {
  local tty=0
  [[ -t 2 ]] && tty=1
  awk -v name="$1" -v tty="$tty" '
    function count() {
      if (tty) printf "\r\033[Kcontrolplane:   %s: %d modules fetched, %d packages compiled", name, fetched, compiled
      else if ((fetched + compiled) % 250 == 0) printf "controlplane:   %s: %d modules fetched, %d packages compiled\n", name, fetched, compiled
      fflush()
    }
    /^go: downloading / { fetched++; count(); next }
    !/ /                { compiled++; count(); next }
                        { print; fflush() }
    END                 { if (tty && fetched + compiled) printf "\r\033[K" }' >&2
}

build() {
  local name=$1 package=$2 since=$SECONDS
  say "building $name ..."
  # The file descriptor of the lock stays with this script: a straggling child must not hold it.
  go build -v -trimpath -ldflags "$ldflags" -o "$unfinished/$name" "$package" 2>&1 9>&- | show_progress "$name"
  say "built $name in $((SECONDS - since)) s"
}

say "building the Kubernetes $version control plane once, into $assets (some minutes)"
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kubectl k8s.io/kubernetes/cmd/kubectl

# A rename is atomic: whoever sees the directory sees all of it.
[[ -d $assets ]] || mv "$unfinished" "$assets"
echo "$assets"
