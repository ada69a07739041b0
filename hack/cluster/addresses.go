//go:build linux

package main

// Where everything is. The addresses are of 198.18.0.0/15, which is set aside for tests (RFC 2544), so that they
// collide with nobody's network. The machine reaches the node, pods and Services through one veth pair.
const (
	hostDevice, nodeDevice = "mo-host", "mo-node"
	hostAddress            = "198.18.0.1"
	nodeAddress            = "198.18.0.2"
	linkBits               = "/30"

	podRange        = "198.18.32.0/24"
	serviceRange    = "198.18.16.0/20"
	kubernetesIP    = "198.18.16.1" // the Service kubernetes.default
	dnsIP           = "198.18.16.10"
	clusterDomain   = "cluster.local"
	nodeName        = "node"
	kubernetesURL   = "https://" + nodeAddress + ":6443"
	etcdURL         = "http://127.0.0.1:2379"
	cgroup          = "/merchant-operator-cluster"
	containerdState = "/run/containerd"
	containerdAt    = containerdState + "/containerd.sock"
)
