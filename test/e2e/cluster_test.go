//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// cluster is the one that KUBECONFIG names, seen as its administrator.
type cluster struct {
	client.Client
	pods kubernetes.Interface // for logs, and the proxy to pods
}

func newCluster() *cluster {
	GinkgoHelper()
	path := os.Getenv("KUBECONFIG")
	Expect(path).NotTo(BeEmpty(), "KUBECONFIG names no cluster; `make e2e` makes one")
	config, err := clientcmd.BuildConfigFromFlags("", path)
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Burst = 100, 200

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	objects, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return &cluster{Client: objects, pods: pods}
}

// makeNamespaces makes those of the test, in all of which the restricted Pod Security Standard is enforced.
func (c *cluster) makeNamespaces(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{systemNamespace, shops, strangers} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}
		Expect(client.IgnoreAlreadyExists(c.Create(ctx, namespace))).To(Succeed())
	}
}

// install installs the chart, or upgrades it, and waits until all pods are ready.
func (c *cluster) install(ctx context.Context, more ...string) {
	GinkgoHelper()
	product, tag := image("E2E_IMAGE")
	redis, redisTag := image("E2E_REDIS_IMAGE")
	c.helm(ctx, append([]string{
		"upgrade", "--install", release, "../../charts/merchant-operator",
		"--namespace", systemNamespace, "--values", "values.yaml",
		"--set", "image.repository=" + product, "--set", "image.tag=" + tag,
		"--set", "redis.bundled.image.repository=" + redis, "--set", "redis.bundled.image.tag=" + redisTag,
		"--wait", "--timeout", "6m",
	}, more...)...)
}

func (c *cluster) helm(ctx context.Context, args ...string) {
	GinkgoHelper()
	program := os.Getenv("HELM")
	Expect(program).NotTo(BeEmpty(), "HELM is the path of helm; `make e2e` sets it")
	said, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		c.describe(context.WithoutCancel(ctx))
	}
	Expect(err).NotTo(HaveOccurred(), "helm %s: %s", strings.Join(args, " "), said)
}

// image is the repository and the tag that a variable names.
func image(variable string) (repository, tag string) {
	GinkgoHelper()
	name := os.Getenv(variable)
	at := strings.LastIndexByte(name, ':')
	Expect(at).To(BeNumerically(">", 0), "%s=%q is no image with a tag; `make e2e` sets it", variable, name)
	return name[:at], name[at+1:]
}

// roles are the Deployments of the release.
func roles() []string {
	return []string{release, release + "-apiserver", release + "-dispatcher", release + "-console"}
}

// waitForRollouts waits until every pod of every role is the newest and ready, and no other is left.
func (c *cluster) waitForRollouts(ctx context.Context) {
	GinkgoHelper()
	for _, role := range roles() {
		Eventually(func(g Gomega) {
			var deployment appsv1.Deployment
			g.Expect(c.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: role}, &deployment)).To(Succeed())
			wanted := *deployment.Spec.Replicas
			g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
			g.Expect(deployment.Status.UpdatedReplicas).To(Equal(wanted))
			g.Expect(deployment.Status.ReadyReplicas).To(Equal(wanted))
			g.Expect(c.podsOf(ctx, g, role)).To(HaveLen(int(wanted)))
		}).WithContext(ctx).Should(Succeed(), "%s rolls out", role)
	}
}

// podsOf are the pods of a role, those included that are ending.
func (c *cluster) podsOf(ctx context.Context, g Gomega, role string) []corev1.Pod {
	component := strings.TrimPrefix(strings.TrimPrefix(role, release), "-")
	if component == "" {
		component = "operator"
	}
	var list corev1.PodList
	g.Expect(c.List(ctx, &list, client.InNamespace(systemNamespace), client.MatchingLabels{
		"app.kubernetes.io/instance": release, "app.kubernetes.io/component": component,
	})).To(Succeed())
	return list.Items
}

// describe tells what the pods are doing, for a failure.
func (c *cluster) describe(ctx context.Context) {
	for _, namespace := range []string{systemNamespace, shops} {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			GinkgoWriter.Printf("list the pods of %s: %v\n", namespace, err)
			continue
		}
		for _, pod := range list.Items {
			GinkgoWriter.Printf("%s/%s: %s %v\n", namespace, pod.Name, pod.Status.Phase, states(pod))
			tail := int64(15)
			logs, err := c.pods.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &tail}).DoRaw(ctx)
			GinkgoWriter.Printf("%s%v\n", logs, err)
		}
	}
}

func states(pod corev1.Pod) []string {
	var all []string
	for _, container := range pod.Status.ContainerStatuses {
		switch state := container.State; {
		case state.Waiting != nil:
			all = append(all, fmt.Sprintf("%s waits: %s %s", container.Name, state.Waiting.Reason, state.Waiting.Message))
		case state.Terminated != nil:
			all = append(all, fmt.Sprintf("%s ended: %s", container.Name, state.Terminated.Reason))
		default:
			all = append(all, fmt.Sprintf("%s runs, ready: %t, restarts: %d", container.Name, container.Ready, container.RestartCount))
		}
	}
	return all
}
