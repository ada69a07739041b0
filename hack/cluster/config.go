//go:build linux

package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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

//go:embed templates
var templates embed.FS

// clients are those who have a kubeconfig: what it is called, and whom it speaks for.
func clients() map[string]identity {
	return map[string]identity{
		"kubeconfig":                    {name: "cluster-admin", group: "system:masters"},
		"controller-manager.kubeconfig": {name: "system:kube-controller-manager"},
		"scheduler.kubeconfig":          {name: "system:kube-scheduler"},
		"kubelet.kubeconfig":            {name: "system:node:" + nodeName, group: "system:nodes"},
		"proxy.kubeconfig":              {name: "system:kube-proxy"},
		"policies.kubeconfig":           {name: "kube-router"},
	}
}

// writeConfigs makes the certificates, kubeconfigs and configuration files of a new cluster.
func writeConfigs(directory string) error {
	if err := os.MkdirAll(filepath.Join(directory, "logs"), 0o700); err != nil {
		return fmt.Errorf("make a directory for the cluster: %w", err)
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, "ca.crt"), encodeCertificate(ca.certificate.Raw), 0o600); err != nil {
		return err
	}
	for name, who := range map[string]identity{
		"apiserver":         {name: "kube-apiserver", hosts: []string{nodeAddress, kubernetesIP, "127.0.0.1", "kubernetes.default.svc", "kubernetes.default"}},
		"apiserver-kubelet": {name: "kube-apiserver-kubelet-client", group: "system:masters"},
		"service-accounts":  {name: "service-accounts"},
	} {
		if err := ca.write(directory, name, who); err != nil {
			return err
		}
	}
	for name, who := range clients() {
		if err := writeKubeconfig(filepath.Join(directory, name), ca, who); err != nil {
			return err
		}
	}
	return writeTemplates(directory)
}

func writeKubeconfig(path string, ca *authority, who identity) error {
	certificate, key, err := ca.issue(who)
	if err != nil {
		return err
	}
	const name = "merchant-operator-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: kubernetesURL, CertificateAuthorityData: encodeCertificate(ca.certificate.Raw)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeTemplates fills in the files of templates/, and drops their .tmpl.
func writeTemplates(directory string) error {
	values := map[string]string{
		"Directory": directory, "PodRange": podRange, "DNS": dnsIP, "Domain": clusterDomain, "Cgroup": cgroup,
		"PauseImage": pauseImage, "DNSImage": dnsImage, "Containerd": containerdAt, "ContainerdState": containerdState,
	}
	all, err := template.New("").Option("missingkey=error").ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return fmt.Errorf("read the templates: %w", err)
	}
	for _, one := range all.Templates() {
		name := strings.TrimSuffix(one.Name(), ".tmpl")
		if name == "" {
			continue
		}
		file, err := os.OpenFile(filepath.Join(directory, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := one.Execute(file, values); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

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
