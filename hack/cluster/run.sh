#!/usr/bin/env bash
# Makes a Kubernetes cluster of one node on this machine for end-to-end tests, and removes it without a trace:
#
#   hack/cluster/run.sh up             start it, unless it runs; write .cluster/kubeconfig
#   hack/cluster/run.sh load ARCHIVE   load the images of an archive into it
#   hack/cluster/run.sh down           remove all of it
#
# If docker answers, the cluster is kind's. If not, the node is native: etcd, kube-apiserver, kubelet and the others, built
# from their Go modules, with containerd and CNI plugins of the system. That needs root and what `hack/install.sh node`
# installs. Its programs run in namespaces of their own (processes, mounts, network) and keep their state in memory, so that
# the end of one process is the end of everything. No image is pulled. Logs are in .cluster/logs.
#
# The addresses are of 198.18.0.0/15, which is reserved for tests (RFC 2544): the machine 198.18.0.1, the node 198.18.0.2,
# Services 198.18.16.0/20, pods 198.18.32.0/24.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

state=$PWD/.cluster
# Holds the process id of the node and its directory, and is locked while the node runs. The addresses allow one cluster on
# a machine, so all clones use the same file.
lock=/run/merchant-operator-cluster
cgroup=merchant-operator-cluster

step() { printf '==> %s\n' "$*"; }
fail() { printf 'cluster: %s\n' "$*" >&2; exit 1; }

# until_done WHAT COMMAND ...: repeats a command until it succeeds.
until_done() {
  local what=$1 output
  shift
  until output=$("$@" 2>&1); do
    ((SECONDS < 600)) || fail "waited in vain until $what: $output (see $state/logs)"
    sleep 0.3
  done
}

kubectl() { "$KUBEBUILDER_ASSETS/kubectl" --kubeconfig "$state/kubeconfig" --request-timeout=30s "$@"; }
runs() { [[ -e $lock ]] && ! flock --nonblock "$lock" true; }

# The roots of cgroups: one for each controller in version 1, one for all in version 2.
cgroup_roots() { if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then echo /sys/fs/cgroup; else ls -d /sys/fs/cgroup/*/; fi; }

# Makes the cgroup of the pods.
make_cgroups() {
  local root group file
  for root in $(cgroup_roots); do
    group=$root/$cgroup
    mkdir -p "$group"
    # In version 1 a new cpuset is empty, and nothing can run in it.
    for file in cpuset.cpus cpuset.mems; do [[ ! -e $root/$file ]] || cat "$root/$file" >"$group/$file"; done
    # The largest CPU share: on a busy machine, one group among many processes would starve, and tests would time out.
    [[ ! -e $group/cpu.shares ]] || echo 262144 >"$group/cpu.shares"
    [[ ! -e $group/cpu.weight ]] || echo 10000 >"$group/cpu.weight"
  done
}

# The kernel allows it once the last process has left.
remove_cgroups() {
  local root
  for root in $(cgroup_roots); do
    [[ ! -d $root/$cgroup ]] || find "$root/$cgroup" -depth -type d -exec rmdir {} + || return 1
  done
}

start_node() {
  mkdir -p "$state/logs"
  chmod 700 "$state"
  make_cgroups
  exec 9>"$lock"
  flock 9
  PATH=$CLUSTER_COMPONENTS:$KUBEBUILDER_ASSETS:$PATH:/usr/sbin:/sbin \
    setsid unshare --pid --fork --kill-child --mount --mount-proc --net --uts --ipc \
    hack/cluster/node.sh "$state" >"$state/logs/node.log" 2>&1 </dev/null &
  local pid=$!
  printf '%s %s\n' "$pid" "$state" >&9
  exec 9>&- # the node has it now
  until_done "the node has its namespaces" test -e "$state/isolated"
  # This machine reaches the node, pods and Services through a veth pair, which goes with the namespace.
  ip link add mo-host type veth peer name mo-node netns "$pid"
  ip address add 198.18.0.1/30 dev mo-host
  ip link set mo-host up
  ip route add 198.18.32.0/24 via 198.18.0.2
  ip route add 198.18.16.0/20 via 198.18.0.2
}

up_native() {
  [[ $(id -u) == 0 ]] || fail "a native node needs root; or start docker"
  hack/install.sh node
  KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)
  CLUSTER_COMPONENTS=$(hack/cluster/components/build.sh)
  SECONDS=0 # until_done does not count the builds
  if runs; then
    read -r _ directory <"$lock"
    [[ $directory == "$state" ]] || fail "the cluster of $directory runs; remove it first: hack/cluster/run.sh down"
    step "the cluster runs already"
  else
    down_native # what a killed one has left
    step "starting a node: etcd, kube-apiserver, controller manager, scheduler, kubelet, kube-proxy, containerd"
    start_node
  fi
  step "packing the images of pause and CoreDNS"
  go -C hack/image build -o "$PWD/bin/image" .
  bin/image pack 65535:65535 merchant-operator.local/pause:1 bin/pause.tar "$CLUSTER_COMPONENTS/pause"
  bin/image pack 65532:65532 merchant-operator.local/coredns:1 bin/coredns.tar "$CLUSTER_COMPONENTS/coredns"
  step "waiting for containerd, and loading them"
  for archive in bin/pause.tar bin/coredns.tar; do until_done "containerd takes images" load_native "$archive"; done
  step "waiting for the Kubernetes API"
  until_done "the Kubernetes API is ready" kubectl get --raw=/readyz
  # The server creates kube-system only after it is ready.
  until_done "DNS and the roles of kube-router are applied" \
    kubectl apply --server-side --force-conflicts -f hack/cluster/config/network-policies.yaml -f hack/cluster/config/dns.yaml \
      -f hack/cluster/config/kubelet-access.yaml
  step "waiting for the node and DNS"
  until_done "the node is ready" kubectl wait --for=condition=Ready --timeout=10s node/node
  until_done "DNS is ready" kubectl -n kube-system rollout status --timeout=30s deployment/coredns
}

load_native() {
  runs || { echo "no cluster runs; start it with make cluster" >&2; return 1; }
  local pid directory
  read -r pid directory <"$lock"
  nsenter --target "$pid" --mount ctr --address /run/containerd/containerd.sock --namespace k8s.io images import - <"$1" >/dev/null
}

down_native() {
  local pid='' directory=$state
  [[ ! -e $lock ]] || read -r pid directory <"$lock" || true
  if runs; then
    step "stopping the node and everything in it"
    kill -KILL "$pid"
  fi
  until_done "the node has ended" eval '! runs'
  until_done "its network device is gone" eval '[[ ! -e /sys/class/net/mo-host ]] || { ip link delete mo-host; false; }'
  until_done "its cgroups are gone" remove_cgroups
  rm -rf "$directory" "$state" "$lock"
}

kind() { GOWORK=off go -C hack/cluster/components tool kind "$@" --name merchant-operator; }

up_kind() {
  mkdir -p "$state"
  if docker inspect merchant-operator-control-plane >/dev/null 2>&1; then
    step "the kind cluster runs already"
    kind export kubeconfig --kubeconfig "$state/kubeconfig"
  else
    kind create cluster --kubeconfig "$state/kubeconfig" --wait 5m
  fi
}

load_kind() { kind load image-archive "$(realpath "$1")"; }

down_kind() {
  kind delete cluster
  rm -rf "$state"
}

provider=native
! timeout 10 docker version >/dev/null 2>&1 || provider=kind
case $#-${1:-} in
  1-up)
    "up_$provider"
    step "ready: export KUBECONFIG=$state/kubeconfig"
    ;;
  2-load) "load_$provider" "$2" ;;
  1-down) "down_$provider" ;;
  *) fail "usage: hack/cluster/run.sh up | load ARCHIVE | down" ;;
esac
