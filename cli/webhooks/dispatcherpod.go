package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// execInDispatcher runs the binary in a pod of the dispatcher, which knows the URL of Redis and its password.
func (c *commands) execInDispatcher(ctx context.Context, kube *cluster.Cluster, out io.Writer, args []string) error {
	pod, err := c.dispatcherPod(ctx, kube)
	if err != nil {
		return err
	}
	container := pod.Spec.Containers[0]
	if name := pod.Annotations["kubectl.kubernetes.io/default-container"]; name != "" {
		container.Name = name
	}
	command := "/merchant-operator"
	if len(container.Command) > 0 {
		command = container.Command[0]
	}
	options := &corev1.PodExecOptions{Container: container.Name, Command: append([]string{command}, args...), Stdout: true, Stderr: true}
	executor, err := newExecutor(kube.Config, pod, options)
	if err != nil {
		return fmt.Errorf("exec into pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var problems bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: &problems})
	if _, ended := errors.AsType[utilexec.CodeExitError](err); ended {
		return errors.New(strings.TrimSpace(strings.TrimPrefix(problems.String(), "merchant-operator: ")))
	}
	if err != nil {
		return fmt.Errorf("exec into pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// dispatcherPod returns a pod of the dispatcher, a ready one if there is one.
func (c *commands) dispatcherPod(ctx context.Context, kube *cluster.Cluster) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace(c.access.SystemNamespace), client.MatchingLabels{cluster.ProductLabel: cluster.Product, cluster.RoleLabel: "dispatcher"}); err != nil {
		return nil, fmt.Errorf("list the pods of the dispatcher: %w", err)
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
	})
	if len(running) == 0 {
		return nil, terminal.Hinted("Set --system-namespace, or --redis-url.", "no pod of the dispatcher runs in namespace %s", c.access.SystemNamespace)
	}
	return new(slices.MaxFunc(running, func(a, b corev1.Pod) int { return cmp.Compare(readyContainers(a), readyContainers(b)) })), nil
}

func readyContainers(pod corev1.Pod) (n int) {
	for _, container := range pod.Status.ContainerStatuses {
		if container.Ready {
			n++
		}
	}
	return n
}

// newExecutor uses a WebSocket and, where a proxy or an old API server does not allow it, SPDY, as kubectl does.
func newExecutor(config *rest.Config, pod *corev1.Pod, options *corev1.PodExecOptions) (remotecommand.Executor, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &schema.GroupVersion{Version: "v1"}, scheme.Codecs.WithoutConversion()
	pods, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	url := pods.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	socket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
