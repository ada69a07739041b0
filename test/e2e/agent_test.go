//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// agent is a pod that acts for the tests.
type agent struct {
	cluster         *cluster
	namespace, name string
}

// The words of the agent's interface (agent/).
type (
	exchange struct {
		Method  string            `json:"method"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers,omitempty"`
		Body    string            `json:"body,omitempty"`
	}
	answer struct {
		Error   string      `json:"error"`
		Status  int         `json:"status"`
		Headers http.Header `json:"headers"`
		Body    string      `json:"body"`
	}
	loadSpec struct {
		URL       string `json:"url"`
		Key       string `json:"key"`
		PerSecond int    `json:"perSecond"`
	}
	loadReport struct {
		Requests      int      `json:"requests"`
		Failed        int      `json:"failed"`
		Failures      []string `json:"failures"`
		SlowestMillis int64    `json:"slowestMillis"`
	}
	hook struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
)

// startAgent starts one, with a Service of its name in front.
func (c *cluster) startAgent(ctx context.Context, namespace, name string) agent {
	GinkgoHelper()
	pod := agentPod(namespace, name, "serve", ":8080")
	if namespace == shops { // a stranger is neither a rail nor trusts our servers
		pod.Labels["merchant-operator.io/rail"] = "true"
		mountSecret(pod, authoritySecret)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SSL_CERT_FILE", Value: "/etc/" + authoritySecret + "/ca.crt"}}
	}
	c.startPod(ctx, pod, 8080)
	return agent{cluster: c, namespace: namespace, name: name}
}

// startPod starts a pod of an agent's image, with a Service of its name in front.
func (c *cluster) startPod(ctx context.Context, pod *corev1.Pod, port int32) {
	GinkgoHelper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"e2e": pod.Name},
			Ports:    []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}
	Expect(c.Create(ctx, pod)).To(Succeed())
	Expect(c.Create(ctx, service)).To(Succeed())
	c.waitForPod(ctx, pod)
}

// mountSecret mounts a Secret at /etc/<name>.
func mountSecret(pod *corev1.Pod, name string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/etc/" + name, ReadOnly: true})
}

// agentPod is a pod of the agent's image, which meets the restricted Pod Security Standard.
func agentPod(namespace, name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"e2e": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "agent", Image: os.Getenv("E2E_AGENT_IMAGE"), ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

func (c *cluster) waitForPod(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(ready(*pod)).To(BeTrue(), "%s is %s: %v", pod.Name, pod.Status.Phase, states(*pod))
	}).WithContext(ctx).Should(Succeed())
}

func ready(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// call asks the agent, through the Kubernetes API.
func (a agent) call(ctx context.Context, method, path string, body, into any) {
	GinkgoHelper()
	content, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	said, err := a.cluster.pods.CoreV1().RESTClient().Verb(method).
		Namespace(a.namespace).Resource("pods").Name(a.name + ":8080").SubResource("proxy").Suffix(path).
		Body(content).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred(), "%s %s of agent %s: %s", method, path, a.name, said)
	if into != nil {
		Expect(json.Unmarshal(said, into)).To(Succeed(), "what agent %s said: %s", a.name, said)
	}
}

// do has the agent make a request.
func (a agent) do(ctx context.Context, wanted exchange) answer {
	GinkgoHelper()
	var got answer
	a.call(ctx, http.MethodPost, "do", wanted, &got)
	return got
}

func (a agent) startLoad(ctx context.Context, url, key string, perSecond int) {
	GinkgoHelper()
	a.call(ctx, http.MethodPost, "load", loadSpec{URL: url, Key: key, PerSecond: perSecond}, nil)
}

func (a agent) loadSoFar(ctx context.Context) (so loadReport) {
	GinkgoHelper()
	a.call(ctx, http.MethodGet, "load", nil, &so)
	return so
}

func (a agent) stopLoad(ctx context.Context) (so loadReport) {
	GinkgoHelper()
	a.call(ctx, http.MethodDelete, "load", nil, &so)
	return so
}

func (a agent) hooks(ctx context.Context) (all []hook) {
	GinkgoHelper()
	a.call(ctx, http.MethodGet, "hooks", nil, &all)
	return all
}
