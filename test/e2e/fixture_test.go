//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
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
			replicas := *deployment.Spec.Replicas
			g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
			g.Expect(deployment.Status.UpdatedReplicas).To(Equal(replicas))
			g.Expect(deployment.Status.ReadyReplicas).To(Equal(replicas))
			g.Expect(c.rolePods(ctx, g, role)).To(HaveLen(int(replicas)))
		}).WithContext(ctx).Should(Succeed(), "%s rolls out", role)
	}
}

// rolePods are the pods of a role, those included that are ending.
func (c *cluster) rolePods(ctx context.Context, g Gomega, role string) []corev1.Pod {
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

// describe says what the pods are doing, for a failure.
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
func (a agent) do(ctx context.Context, request exchange) answer {
	GinkgoHelper()
	var got answer
	a.call(ctx, http.MethodPost, "do", request, &got)
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

// apply makes a Merchant and an ApiKey of the same name, as a platform team would, and returns the key that was
// delivered when both are ready.
func (c *cluster) apply(ctx context.Context, name string, change ...func(*v1alpha1.Merchant)) (key string) {
	GinkgoHelper()
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: name},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "The shop " + name,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 500, Burst: 1000},
		},
	}
	for _, one := range change {
		one(merchant)
	}
	apiKey := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: name},
			Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
		},
	}
	Expect(c.Create(ctx, merchant)).To(Succeed())
	Expect(c.Create(ctx, apiKey)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(apiKey), apiKey)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(merchant.Status.Conditions, "Ready")).To(BeTrue(), "%+v", merchant.Status)
		g.Expect(meta.IsStatusConditionTrue(apiKey.Status.Conditions, "Ready")).To(BeTrue(), "%+v", apiKey.Status)
	}).WithContext(ctx).Should(Succeed(), "%s is ready", name)

	key = c.secret(ctx, name+"-key", "apiKey")
	c.waitForKey(ctx, key)
	return key
}

// waitForKey waits until every replica knows the key. Each hears of it by its own watch.
func (c *cluster) waitForKey(ctx context.Context, key string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, url := range c.replicas(ctx, g) {
			g.Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK), url)
		}
	}).WithContext(ctx).Should(Succeed(), "every replica knows the key")
}

func (c *cluster) secret(ctx context.Context, name, field string) string {
	GinkgoHelper()
	var secret corev1.Secret
	Expect(c.Get(ctx, client.ObjectKey{Namespace: shops, Name: name}, &secret)).To(Succeed())
	Expect(secret.Data).To(HaveKey(field))
	return string(secret.Data[field])
}

// replicas are the addresses of the API's pods.
func (c *cluster) replicas(ctx context.Context, g Gomega) []string {
	var urls []string
	for _, pod := range c.rolePods(ctx, g, release+"-apiserver") {
		if ready(pod) {
			urls = append(urls, "http://"+pod.Status.PodIP+":8080")
		}
	}
	g.Expect(urls).NotTo(BeEmpty())
	return urls
}

type session struct {
	SessionID   string `json:"sessionId"`
	Status      string `json:"status"`
	AmountCents int64  `json:"amountCents"`
	Idempotent  bool   `json:"idempotent"`
}

func (a agent) charge(ctx context.Context, url, key, idempotencyKey string) (made session) {
	GinkgoHelper()
	got := a.do(ctx, exchange{
		Method: http.MethodPost, URL: url + "/api/v1/sessions", Body: `{"amountCents": 1250, "orderRef": "1001"}`,
		Headers: map[string]string{"Authorization": "Bearer " + key, "Idempotency-Key": idempotencyKey},
	})
	Expect(got.Status).To(Equal(http.StatusCreated), "%+v", got)
	Expect(json.Unmarshal([]byte(got.Body), &made)).To(Succeed())
	return made
}

// read makes a GET with a key, or without when it is empty.
func (a agent) read(ctx context.Context, url, key, path string) answer {
	GinkgoHelper()
	headers := map[string]string{}
	if key != "" {
		headers["Authorization"] = "Bearer " + key
	}
	return a.do(ctx, exchange{Method: http.MethodGet, URL: url + path, Headers: headers})
}

func (a agent) post(ctx context.Context, url, key, path, body string) answer {
	GinkgoHelper()
	return a.do(ctx, exchange{Method: http.MethodPost, URL: url + path, Body: body, Headers: map[string]string{"Authorization": "Bearer " + key}})
}
