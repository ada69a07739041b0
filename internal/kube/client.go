// Package kube is what roles have in common towards the Kubernetes API: how to reach it, and informers that keep published objects
// decoded.
package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
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

// Client returns a client of the kinds that Kubernetes itself has, which can be asked for in protobuf. That costs both
// sides less than JSON, and there may be a hundred thousand Secrets to read at the start. Custom resources have JSON only.
func Client(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a Kubernetes client: %w", err)
	}
	return client, nil
}
