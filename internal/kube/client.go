// Package kube connects roles to the Kubernetes API: clients, and informers that keep published objects decoded.
package kube

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// dialTimeout is short because packets to a server that is gone get lost: TCP sends them again later and later, and the first one to
	// arrive after the server's return may be 16 s late. The lookup of the server's name is part of it; a pod has the server's address.
	dialTimeout = 3 * time.Second
	keepAlive   = 30 * time.Second
)

// Load reads the kubeconfig file or, without one, $KUBECONFIG or the pod's service account. The role appears in the API server's
// audit log. keep is what clients of the config read of the metadata of objects that tenants write. Each client of the config has a connection
// of its own, so what waits behind others there delays only itself.
func Load(path, role string, keep Keep) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: set --kubeconfig or KUBECONFIG, or run in a pod with a service account")
	}
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig (--kubeconfig or KUBECONFIG): %w", err)
	}
	if err := noticeSilence(); err != nil {
		return nil, err
	}
	config.QPS = -1 // the default of 5 per second would delay rotations; the API server has its own limits
	config.UserAgent = "merchant-operator-" + role
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	boundPages(config)
	Slim(config, keep)
	return config, nil
}

// noticeSilence has client-go close a connection that is silent for a second and does not answer a ping within two more. A balancer
// that fails over forgets connections without a word. All watches share one, so with client-go's defaults, 30 and 15 seconds, a replica
// would accept a disabled key for as long. client-go reads these values from the environment alone, for each transport that it makes;
// what somebody has set there stays.
func noticeSilence() error {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "1", "HTTP2_PING_TIMEOUT_SECONDS": "2"} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// Client returns a client for the built-in kinds that uses protobuf. It is cheaper than JSON for both sides, and there may be
// 100,000 Secrets to read at start. Custom resources have JSON only.
func Client(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	return client, nil
}
