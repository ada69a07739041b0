package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// startControlPlane starts etcd and kube-apiserver with the project's CRDs installed. If one of them ends, the environment fails.
func (e *environment) startControlPlane(_ context.Context) error {
	etcd, err := e.programs.logUntilEnd("etcd")
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // the process has its own
	apiserver, err := e.programs.logUntilEnd("kube-apiserver")
	if err != nil {
		return err
	}
	defer func() { _ = apiserver.Close() }()

	e.cluster = &envtest.Environment{
		UseExistingCluster:       new(false), // whatever USE_EXISTING_CLUSTER says: never a real cluster
		BinaryAssetsDirectory:    e.assets,
		CRDDirectoryPaths:        []string{filepath.Join(e.root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Minute,
		ControlPlaneStopTimeout:  patienceToStop,
	}
	e.cluster.ControlPlane.Etcd = &envtest.Etcd{Out: etcd, Err: etcd}
	server := e.cluster.ControlPlane.GetAPIServer()
	server.Out, server.Err = apiserver, apiserver

	e.onStop("Kubernetes API", e.cluster.Stop) // also if only etcd has started
	if _, err := e.cluster.Start(); err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(e.programs.logPath("kube-apiserver")))
	}
	return nil
}

// serverURL is the URL of the Kubernetes API, without the slash that envtest adds.
func serverURL(config *rest.Config) string { return strings.TrimSuffix(config.Host, "/") }

// answers returns nil if a GET of url is answered with 200.
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

// startRoles starts the roles, each with a token of its service account as in a pod, and waits until they are ready.
func (e *environment) startRoles(ctx context.Context) error {
	for role, account := range map[string]string{ // of config/rbac
		"operator": "merchant-operator", "apiserver": "merchant-operator-apiserver", "dispatcher": "merchant-operator-dispatcher",
		"console": "merchant-operator-console",
	} {
		token, err := e.token(ctx, "merchant-operator-system", account)
		if err != nil {
			return err
		}
		config := rest.AnonymousClientConfig(e.cluster.Config)
		config.BearerToken = token
		if err := writeKubeconfig(e.kubeconfig(role), config, ""); err != nil {
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
			"--receipts",
			"--payment-app-url", e.bankURL()+"/pay/{sessionId}",
			"--drain-delay", "0s", // there is no load balancer
			"--log-refused-keys",
		); err != nil {
			return err
		}
	}
	if err := e.startRole("dispatcher", "dispatcher", e.addresses.dispatcherOps,
		"--redis-url", e.redisURL(),
		"--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8,::1/128", // receivers on this machine
		"--smtp-url", "smtp://"+e.addresses.mail, "--smtp-from", "Demo Pay <receipts@pay.example>",
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

// emptyRedis is what a Redis that is started again means.
const emptyRedis = "Redis runs again and is EMPTY: payments, refunds, events and receipts of before are gone, a till gets 404 for its sessions,\n" +
	"    and the payer page above is not found. Idempotency keys, limits and logins to the console begin anew; API keys and merchants stay."

// startRedis starts the server that REDIS_SERVER names, else redis-server, else an embedded substitute. A server that ends is started
// again, without its data.
func (e *environment) startRedis(ctx context.Context) error {
	path, err := redistest.Binary()
	if err != nil && os.Getenv("REDIS_SERVER") != "" {
		return err
	}
	if err != nil {
		return e.startMiniredis(ctx)
	}
	host, port, err := net.SplitHostPort(e.addresses.redis)
	if err != nil {
		return fmt.Errorf("take the port of Redis from its address: %w", err)
	}
	e.programs.restarted = map[string]string{"redis": emptyRedis}
	stop, err := e.programs.keep("redis", path, "--bind", host, "--port", port, "--dir", e.directory,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	if err != nil {
		return err
	}
	e.onStop("Redis", stop)
	e.redis = path
	return eventually(ctx, "Redis to listen", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.addresses.redis)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (e *environment) startMiniredis(ctx context.Context) error {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(e.addresses.redis); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	e.onStop("Redis", func() error { server.Close(); return nil })
	e.redis = "embedded, because redis-server is not on the PATH"
	go func() { // its clock stands still otherwise
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				server.FastForward(time.Second)
			}
		}
	}()
	return nil
}

func (e *environment) mailSinkURL() string { return "http://" + e.addresses.mailSink }

// startMail starts a mail server that shows what it receives, and sends nothing on.
func (e *environment) startMail(ctx context.Context) error {
	server, err := mailtest.Start(mailtest.Options{Address: e.addresses.mail})
	if err != nil {
		return fmt.Errorf("start the mail server: %w", err)
	}
	e.onStop("the mail server", server.Close)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.addresses.mailSink)
	if err != nil {
		return fmt.Errorf("show mails: %w", err)
	}
	shown := &http.Server{Handler: server.Handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	e.onStop("the page of mails", shown.Close)
	go func() { _ = shown.Serve(listener) }()
	return nil
}
