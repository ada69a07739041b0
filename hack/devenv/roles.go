package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The service accounts of config/rbac.
const (
	systemNamespace  = "merchant-operator-system"
	operatorAccount  = "merchant-operator"
	apiserverAccount = "merchant-operator-apiserver"

	dispatcherAccount = "merchant-operator-dispatcher"
)

// startRoles starts the product, each role with the rights of its service account, and waits until it is ready.
func (e *environment) startRoles(ctx context.Context) error {
	for role, account := range map[string]string{
		"operator": operatorAccount, "apiserver": apiserverAccount, "dispatcher": dispatcherAccount,
	} {
		if err := e.writeRoleKubeconfig(ctx, role, account); err != nil {
			return err
		}
	}
	if err := e.startRole("operator", "operator", e.addresses.operatorOps, "--leader-elect=false"); err != nil {
		return err
	}
	for i, name := range []string{"apiserver-1", "apiserver-2"} {
		if err := e.startRole(name, "apiserver", e.addresses.ops[i],
			"--redis-url", e.redisURL(),
			"--public-address", e.addresses.public[i],
			"--internal-address", e.addresses.internal[i],
			"--qr-scheme", "pay",
			"--drain-delay", "0s", // no load balancer has to notice
		); err != nil {
			return err
		}
	}
	if err := e.startRole("dispatcher", "dispatcher", e.addresses.dispatcherOps,
		"--redis-url", e.redisURL(),
		"--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8,::1/128", // receivers of this machine
	); err != nil {
		return err
	}
	for _, ops := range append([]string{e.addresses.operatorOps, e.addresses.dispatcherOps}, e.addresses.ops[:]...) {
		url := "http://" + ops + "/readyz"
		if err := eventually(ctx, url, func(ctx context.Context) error {
			return answers(ctx, http.DefaultClient, url)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (e *environment) startRole(name, role, opsAddress string, args ...string) error {
	stop, err := e.programs.keep(name, filepath.Join(e.root, "bin", "merchant-operator"), append([]string{
		role,
		"--kubeconfig", e.kubeconfig(role),
		"--credentials-namespace", credentialsNamespace,
		"--ops-address", opsAddress,
	}, args...)...)
	if err != nil {
		return err
	}
	e.onStop(name, stop)
	return nil
}

func (e *environment) redisURL() string { return "redis://" + e.addresses.redis + "/0" }

// writeRoleKubeconfig lets a role in with a token of its account, as a kubelet would give its pod.
func (e *environment) writeRoleKubeconfig(ctx context.Context, role, accountName string) error {
	token, err := e.token(ctx, systemNamespace, accountName)
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(e.cluster.Config)
	config.BearerToken = token
	return writeKubeconfig(e.kubeconfig(role), config, "")
}

func (e *environment) kubeconfig(who string) string {
	if who == "admin" {
		return filepath.Join(e.directory, "kubeconfig")
	}
	return filepath.Join(e.directory, who+".kubeconfig")
}

// writeKubeconfig makes a file that only its owner can read. Without a namespace it is "default".
func writeKubeconfig(path string, config *rest.Config, namespace string) error {
	const name = "merchant-operator-dev"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   serverURL(config),
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
	}, path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
