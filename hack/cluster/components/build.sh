#!/usr/bin/env bash
# Prints a directory that holds what a node needs besides the control plane: kubelet, kube-proxy,
# kube-controller-manager, kube-scheduler, CoreDNS, kube-router and a pause, building them first if need be.
#
#   export CLUSTER_COMPONENTS=$(hack/cluster/components/build.sh)
#
# Only the directory goes to stdout; progress goes to stderr. Built binaries are kept outside the tree, one directory
# per set of sources, so that clones share them: $XDG_CACHE_HOME (or ~/.cache)/merchant-operator/components.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf 'components: %s\n' "$*" >&2; }

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly
unset GOOS GOARCH # these run here, whatever is being cross-compiled

version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
IFS=. read -r major minor _ <<<"${version#v}"
stamp=k8s.io/component-base/version
ldflags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"

sources=$({ cat go.mod go.sum ./*/*.go; go env GOOS GOARCH; echo "$ldflags"; } | git hash-object --stdin)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/merchant-operator/components
components=$cache/$version-${sources:0:12}

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock --nonblock 9 || { say "another build is running; waiting for it"; flock 9; }
if [[ -d $components ]]; then
  echo "$components"
  exit
fi

rm -rf "$cache"/.building.* # left by a build that was killed
unfinished=$(mktemp -d "$cache/.building.XXXXXX")
trap 'rm -rf "$unfinished"' EXIT

say "building the parts of a Kubernetes $version node once, into $components (some minutes)"
for package in \
  k8s.io/kubernetes/cmd/kubelet \
  k8s.io/kubernetes/cmd/kube-proxy \
  k8s.io/kubernetes/cmd/kube-controller-manager \
  k8s.io/kubernetes/cmd/kube-scheduler \
  github.com/cloudnativelabs/kube-router/v2/cmd/kube-router \
  ./coredns ./pause; do
  name=${package##*/} since=$SECONDS
  say "building $name ..."
  go build -trimpath -ldflags "$ldflags" -o "$unfinished/$name" "$package" >&2 9>&-
  say "built $name in $((SECONDS - since)) s"
done

# A rename is atomic: whoever sees the directory sees all of it.
mv "$unfinished" "$components"
echo "$components"
