// Package kubeconfig says how a role of the data plane reaches the Kubernetes API.
package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load reads the kubeconfig file or, without one, $KUBECONFIG or the pod's service account. The role is
// what the API server's audit log shows.
func Load(path, role string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	config.QPS = -1 // the default of 5 a second would queue rotations; the API server protects itself
	config.UserAgent = "merchant-operator-" + role
	return config, nil
}
