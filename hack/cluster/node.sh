#!/usr/bin/env bash
# The node of a cluster, for run.sh, which starts it as the first process of new namespaces: node.sh STATE-DIRECTORY
#
# It mounts empty directories in memory over those that the cluster writes to, makes certificates, and runs the programs of
# the node. When it ends, the kernel ends every process in its namespaces and frees their mounts and devices.
set -euo pipefail
config=$(dirname "${BASH_SOURCE[0]}")/config

isolate() {
  touch "$1/isolated" # run.sh waits for it: now this process has its namespaces
  for directory in /run /var/lib /var/log; do mount -t tmpfs -o mode=0755 tmpfs "$directory"; done
  mkdir -p /run/{lock,netns,tunables,cluster,config} /var/lib/{containerd,kubelet} /var/log/{pods,containers}
  mount --bind "$1" /run/cluster
  mount --bind "$config" /run/config
  # As containers expect it of their volumes: a later mount is visible in them.
  mount --make-rshared /var/lib
  hostname node

  # The kubelet sets these for the whole machine unless they have its values already; so it sees files instead.
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/tunables/$(basename "${setting%=*}")
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
  done
}

join_network() {
  until ip link show mo-node >/dev/null 2>&1; do sleep 0.1; done # run.sh adds it
  ip link set lo up
  ip address add 198.18.0.2/30 dev mo-node
  ip link set mo-node up
  ip route add default via 198.18.0.1
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

make_certificates() {
  cd /run/cluster
  cp /run/config/kubeadm.yaml .
  echo "kubernetesVersion: $(kubeadm version --output short)" >>kubeadm.yaml
  for name in ca apiserver apiserver-kubelet-client sa; do kubeadm init phase certs "$name" --config kubeadm.yaml; done
  for name in super-admin kubelet controller-manager scheduler; do
    kubeadm init phase kubeconfig "$name" --config kubeadm.yaml --kubeconfig-dir .
  done
  for name in system:kube-proxy kube-router; do
    kubeadm kubeconfig user --config kubeadm.yaml --client-name "$name" >"${name#system:}.conf"
  done
  mv super-admin.conf kubeconfig
}

# keep PROGRAM ARGUMENT ...: runs a program, and again a second after it has ended. One that starts before another that it
# needs ends or waits.
keep() {
  while true; do
    "$@" >>"/run/cluster/logs/$1.log" 2>&1 </dev/null || true
    echo "$(date -u +%FT%TZ) $1 ended; starting it again"
    sleep 1
  done
}

isolate "$1"
join_network
make_certificates

keep containerd --config=/run/config/containerd.toml &
keep etcd --data-dir=/var/lib/etcd --unsafe-no-fsync --log-level=warn \
  --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
  --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
  --initial-cluster=default=http://127.0.0.1:2380 &
# The advertised address is never loopback: pods connect to it.
keep kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address=198.18.0.2 --secure-port=6443 \
  --service-cluster-ip-range=198.18.16.0/20 --allow-privileged=true \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --client-ca-file=pki/ca.crt \
  --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key \
  --kubelet-client-certificate=pki/apiserver-kubelet-client.crt --kubelet-client-key=pki/apiserver-kubelet-client.key \
  --kubelet-preferred-address-types=InternalIP \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file=pki/sa.pub --service-account-signing-key-file=pki/sa.key &
keep kube-controller-manager --kubeconfig=controller-manager.conf --use-service-account-credentials --leader-elect=false \
  --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt &
keep kube-scheduler --kubeconfig=scheduler.conf --leader-elect=false &
keep kubelet --config=/run/config/kubelet.yaml --kubeconfig=kubelet.conf --hostname-override=node --node-ip=198.18.0.2 &
# 0: the size of the connection table is left to the machine.
keep kube-proxy --kubeconfig=kube-proxy.conf --hostname-override=node --proxy-mode=iptables --conntrack-max-per-core=0 &
keep kube-router --kubeconfig=kube-router.conf --hostname-override=node --service-cluster-ip-range=198.18.16.0/20 \
  --run-firewall=true --run-router=false --run-service-proxy=false --run-loadbalancer=false --health-port=0 --metrics-port=0 &
wait
