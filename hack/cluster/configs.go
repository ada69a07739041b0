//go:build linux

package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	ca, err := newAuthority(time.Now())
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
