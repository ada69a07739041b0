#!/usr/bin/env bash
# Prints a directory that holds what a node needs besides the control plane, building it first if need be.
set -euo pipefail
kubernetes=k8s.io/kubernetes/cmd
exec "$(dirname "${BASH_SOURCE[0]}")/../../build-once.sh" "$(dirname "${BASH_SOURCE[0]}")" k8s.io/kubernetes \
  kubeadm=$kubernetes/kubeadm \
  kubelet=$kubernetes/kubelet \
  kube-proxy=$kubernetes/kube-proxy \
  kube-controller-manager=$kubernetes/kube-controller-manager \
  kube-scheduler=$kubernetes/kube-scheduler \
  kube-router=github.com/cloudnativelabs/kube-router/v2/cmd/kube-router \
  coredns=./coredns pause=./pause
