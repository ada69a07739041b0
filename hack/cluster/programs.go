//go:build linux

package main

import "path/filepath"

// programs are what runs on the node, in the order in which it is best started. Whoever comes too early for another
// ends or waits, and is started again.
func programs(directory string) []program {
	in := func(name string) string { return filepath.Join(directory, name) }
	return []program{
		{"containerd", []string{"--config", in("containerd.toml")}},
		{"etcd", []string{
			"--data-dir=/var/lib/etcd",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380",
			"--unsafe-no-fsync", "--log-level=warn",
		}},
		{"kube-apiserver", []string{
			"--etcd-servers=" + etcdURL,
			"--advertise-address=" + nodeAddress, // never loopback: pods are sent there
			"--secure-port=6443",
			"--service-cluster-ip-range=" + serviceRange,
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--client-ca-file=" + in("ca.crt"),
			"--tls-cert-file=" + in("apiserver.crt"), "--tls-private-key-file=" + in("apiserver.key"),
			"--kubelet-client-certificate=" + in("apiserver-kubelet.crt"), "--kubelet-client-key=" + in("apiserver-kubelet.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
			"--service-account-key-file=" + in("service-accounts.crt"),
			"--service-account-signing-key-file=" + in("service-accounts.key"),
		}},
		{"kube-controller-manager", []string{
			"--kubeconfig=" + in("controller-manager.kubeconfig"),
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + in("service-accounts.key"),
			"--root-ca-file=" + in("ca.crt"),
			"--leader-elect=false",
		}},
		{"kube-scheduler", []string{"--kubeconfig=" + in("scheduler.kubeconfig"), "--leader-elect=false"}},
		{"kubelet", []string{
			"--config=" + in("kubelet.yaml"), "--kubeconfig=" + in("kubelet.kubeconfig"),
			"--hostname-override=" + nodeName, "--node-ip=" + nodeAddress,
		}},
		{"kube-proxy", []string{
			"--kubeconfig=" + in("proxy.kubeconfig"),
			"--hostname-override=" + nodeName,
			"--proxy-mode=iptables",
			"--conntrack-max-per-core=0", // the size of the table is the machine's business
		}},
		{"kube-router", []string{
			"--kubeconfig=" + in("policies.kubeconfig"),
			"--hostname-override=" + nodeName,
			"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false",
			"--service-cluster-ip-range=" + serviceRange,
			"--health-port=0", "--metrics-port=0",
		}},
	}
}
