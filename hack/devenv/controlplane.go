package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startControlPlane starts etcd and kube-apiserver with the project's CRDs installed.
func (e *environment) startControlPlane(_ context.Context) error {
	var logs [2]*os.File
	for i, name := range []string{"etcd", "kube-apiserver"} {
		log, err := os.Create(filepath.Join(e.programs.logs, name+".log"))
		if err != nil {
			return fmt.Errorf("make a log file: %w", err)
		}
		logs[i] = log
	}
	e.onStop("close logs", func() error { return errors.Join(logs[0].Close(), logs[1].Close()) })

	// Whatever USE_EXISTING_CLUSTER says: this is not for somebody's real cluster.
	ownCluster := false
	e.cluster = &envtest.Environment{
		UseExistingCluster:       &ownCluster,
		BinaryAssetsDirectory:    e.assets,
		CRDDirectoryPaths:        []string{filepath.Join(e.root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Minute,
		ControlPlaneStopTimeout:  patienceToStop,
	}
	e.cluster.ControlPlane.Etcd = &envtest.Etcd{Out: logs[0], Err: logs[0]}
	server := e.cluster.ControlPlane.GetAPIServer()
	server.Out, server.Err = logs[1], logs[1]

	e.onStop("Kubernetes API", e.cluster.Stop) // also when it came up by half
	if _, err := e.cluster.Start(); err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(logs[1].Name()))
	}
	return nil
}

// watchControlPlane ends the environment when the Kubernetes API has not answered for some seconds: envtest does
// not say when one of its processes ends.
func (e *environment) watchControlPlane(ctx context.Context) error {
	client, err := rest.HTTPClientFor(e.cluster.Config)
	if err != nil {
		return fmt.Errorf("make a client for the Kubernetes API: %w", err)
	}
	client.Timeout = 2 * time.Second
	go func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		var err error
		for failures := 0; failures < 5; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err = answers(ctx, client, serverURL(e.cluster.Config)+"/livez"); err == nil {
				failures = 0
			} else {
				failures++
			}
		}
		e.programs.fail(fmt.Errorf("the Kubernetes API has stopped answering; see .dev/logs/kube-apiserver.log and etcd.log: %w", err))
	}()
	return nil
}

// serverURL is the Kubernetes API's, without the slash that envtest leaves at its end.
func serverURL(config *rest.Config) string { return strings.TrimSuffix(config.Host, "/") }

// answers is nil when a GET of url is answered with 200.
func answers(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}

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
