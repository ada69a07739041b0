#!/usr/bin/env bash
# `make e2e`: makes a cluster, loads the images of the product, of Redis, and of the tests' agent and OpenID provider into it,
# runs the suite, and removes the cluster in any case. With KEEP=1 the cluster stays. Arguments go to ginkgo.
#
# With E2E_KUBECONFIG no cluster is made: the suite runs in that one, which has to find the three images itself
# (E2E_IMAGE, E2E_REDIS_IMAGE, and E2E_AGENT_IMAGE with agent and provider).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tool() { go build -modfile=go.tools.mod -o "bin/$1" "$2"; }
step() { printf '==> %s\n' "$*"; }

step "building helm, ginkgo and the tests"
mkdir -p bin
tool helm helm.sh/helm/v3/cmd/helm
tool ginkgo github.com/onsi/ginkgo/v2/ginkgo
export HELM=$PWD/bin/helm

if [[ -n ${E2E_KUBECONFIG:-} ]]; then
  export KUBECONFIG=$E2E_KUBECONFIG
else
  export E2E_IMAGE=docker.io/library/merchant-operator:e2e
  export E2E_REDIS_IMAGE=merchant-operator.local/redis:e2e
  export E2E_AGENT_IMAGE=merchant-operator.local/agent:e2e
  hack/install.sh redis
  go -C hack/image build -o "$PWD/bin/image" .
  bin/image -name merchant-operator:e2e -version "e2e-$(git describe --always --dirty)" \
    -platforms "linux/$(go env GOARCH)" -output bin/image-e2e.tar
  CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/e2e-agent ./test/e2e/agent
  CGO_ENABLED=0 go -C hack/oidc build -ldflags '-s -w' -o "$PWD/bin/e2e-oidc" .

  remove() { [[ -n ${KEEP:-} ]] || hack/cluster/run.sh down; }
  trap remove EXIT
  hack/cluster/run.sh up
  bin/image pack 65532:65532 "$E2E_AGENT_IMAGE" bin/agent-e2e.tar bin/e2e-agent bin/e2e-oidc
  bin/image pack 65532:65532 "$E2E_REDIS_IMAGE" bin/redis-e2e.tar redis-server redis-cli
  for archive in bin/{image,agent,redis}-e2e.tar; do hack/cluster/run.sh load "$archive"; done
  export KUBECONFIG=$PWD/.cluster/kubeconfig
fi

step "running the suite"
bin/ginkgo run --tags e2e --timeout 60m "$@" ./test/e2e
