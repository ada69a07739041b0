#!/usr/bin/env bash
# Builds what a cluster is made of, unless it is there, and runs hack/cluster: hack/cluster/run.sh up | load ARCHIVE |
# down (go run ./hack/cluster --help explains them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

go build -o bin/ ./hack/cluster
if [[ ${1:-} == up ]] && ! timeout 10 docker version >/dev/null 2>&1; then
  hack/install.sh node
  KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
  CLUSTER_COMPONENTS=$(hack/cluster/components/build.sh)
  export KUBEBUILDER_ASSETS CLUSTER_COMPONENTS
  go -C hack/image build -o "$PWD/bin/image" .
  bin/image pack 65535:65535 merchant-operator.local/pause:1 bin/pause.tar "$CLUSTER_COMPONENTS/pause"
  bin/image pack 65532:65532 merchant-operator.local/coredns:1 bin/coredns.tar "$CLUSTER_COMPONENTS/coredns"
fi
exec bin/cluster "$@"
