package controllers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	// Far more than anything needs on an idle machine.
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Operator")
}

// environment is the one API server of the suite, administrator its client without any cache, and account what all operators sign in
// with. Each test has namespaces and an operator of its own.
var (
	environment   *envtest.Environment
	administrator client.Client
	account       *envtest.AuthenticatedUser
)

var _ = BeforeSuite(func() {
	environment = kubetest.Start(GinkgoTB())
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	administrator, err = client.New(environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	account, err = environment.AddUser(envtest.User{Name: accountName, Groups: []string{"system:masters"}}, nil)
	Expect(err).NotTo(HaveOccurred())
	installSecretsPolicy()
})

// accountName is the service account of config/rbac. Its rights are tested in test/system.
const accountName = "system:serviceaccount:" + kubetest.SystemNamespace + ":merchant-operator"

// installSecretsPolicy applies the policy for the operator's writes of Secrets, for the credentials namespaces of all tests, and returns
// when it is in force: everything that the operator does in this suite passes it.
func installSecretsPolicy() {
	GinkgoHelper()
	const one = `request.namespace == "` + kubetest.CredentialsNamespace + `"`
	text := repository.Read(GinkgoTB(), "config", "rbac", "operator-secrets.yaml")
	Expect(text).To(ContainSubstring(one))
	text = strings.Replace(text, one, `request.namespace.startsWith("`+credentialsPrefix+`")`, 1)
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		Expect(administrator.Create(context.Background(), object)).To(Succeed())
	}
	operator, err := client.New(account.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		return operator.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}, client.DryRunAll)
	}).Should(MatchError(ContainSubstring("the operator writes only Opaque Secrets with its label")))
}

// credentialsPrefix begins the names of the tests' credentials namespaces.
const credentialsPrefix = "credentials-"

// fixture is what one test runs in: a tenant's namespace, a credentials namespace, and an operator for
// the two that can be stopped, restarted and made to fail.
type fixture struct {
	kube                   client.Client // the administrator's
	namespace, credentials string
	clock                  *shiftedClock
	logs                   *logtest.Buffer
	stop                   func()
}

// newFixture starts the operator, whose writes pass the hooks.
func newFixture(hooks ...interceptor.Funcs) *fixture {
	GinkgoHelper()
	f := &fixture{kube: administrator, clock: &shiftedClock{}, logs: &logtest.Buffer{}}
	f.namespace = f.newNamespace("shops-")
	f.credentials = f.newNamespace(credentialsPrefix)
	f.startOperator(hooked(hooks...))
	DeferCleanup(func() { f.stop() })
	// A pass that panics is recovered and tried again, and might then succeed.
	DeferCleanup(func() { Expect(f.logs.String()).NotTo(ContainSubstring("Observed a panic")) })
	// Whatever a test did, what it leaves must read the same to every tool.
	DeferCleanup(f.expectConformance)
	return f
}

func (f *fixture) newNamespace(prefix string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Expect(f.kube.Create(context.Background(), namespace)).To(Succeed())
	return namespace.Name
}

// hooked lets every write of the operator pass the hooks.
func hooked(hooks ...interceptor.Funcs) func(*Options) {
	return func(o *Options) {
		o.newClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(config, options)
			for _, hook := range hooks {
				c = interceptor.NewClient(c, hook)
			}
			return c, err
		}
	}
}

// startOperator runs an operator, until f.stop, with options that differ from those of a test.
func (f *fixture) startOperator(differ ...func(*Options)) {
	GinkgoHelper()
	content, err := account.KubeConfig()
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, content, 0o600)).To(Succeed())
	options := DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = f.credentials
	options.WatchNamespaces = []string{f.namespace}
	options.Ops.Address = "127.0.0.1:0"
	options.LeaderElect = false
	options.Clock = f.clock
	options.maxClockDifference = anyClock
	options.Log = slog.New(slog.NewJSONHandler(io.MultiWriter(f.logs, GinkgoWriter), &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, change := range differ {
		change(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	f.stop = sync.OnceFunc(func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "the operator ends in order")
	})
}

// restart stops the operator and starts another, which hooks nothing.
func (f *fixture) restart() {
	GinkgoHelper()
	f.stop()
	f.startOperator()
}

// shiftedClock is the real clock, moved ahead.
type shiftedClock struct{ ahead atomic.Int64 }

func (c *shiftedClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *shiftedClock) advance(d time.Duration)         { c.ahead.Add(int64(d)) }

// merchantBuilder builds a Merchant; keyBuilder builds an ApiKey. Each starts with the least a
// manifest needs.
type (
	merchantBuilder struct{ *v1alpha1.Merchant }
	keyBuilder      struct{ *v1alpha1.ApiKey }
)

func aMerchant(name string) merchantBuilder {
	return merchantBuilder{&v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme " + name},
	}}
}

func (b merchantBuilder) state(state v1alpha1.MerchantState) merchantBuilder {
	b.Spec.State = state
	return b
}

func (b merchantBuilder) webhook(edits ...func(*v1alpha1.Webhook)) merchantBuilder {
	b.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	for _, edit := range edits {
		edit(b.Spec.Webhook)
	}
	return b
}

func aKey(name, merchant string) keyBuilder {
	return keyBuilder{&v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
	}}
}

func (b keyBuilder) deliveredAs(secret string) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{SecretName: secret}
	return b
}

func (b keyBuilder) undelivered() keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
	return b
}

func (b keyBuilder) retained(d time.Duration) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: new(int32(d / time.Second))}
	return b
}

func (b keyBuilder) trigger(trigger string) keyBuilder {
	b.Spec.Rotation.Trigger = trigger
	return b
}

func (b keyBuilder) overlap(d time.Duration) keyBuilder {
	b.Spec.Rotation.OverlapSeconds = new(int32(d / time.Second))
	return b
}

// every sets the schedule, with the longest overlap that it allows.
func (b keyBuilder) every(d time.Duration) keyBuilder {
	b.Spec.Rotation.EverySeconds = new(int32(d / time.Second))
	return b.overlap(d)
}

func (b keyBuilder) digest(digest apikey.Digest) keyBuilder {
	b.Spec.KeyDigest = digest.Hex()
	return b
}

func (b keyBuilder) expires(at time.Time) keyBuilder {
	b.Spec.ExpiresAt = &metav1.Time{Time: at}
	return b
}

func (b keyBuilder) annotated(name, value string) keyBuilder {
	b.Labels = map[string]string{name: value}
	b.Annotations = map[string]string{name: value}
	return b
}

// merchant applies a Merchant and waits until it is Ready.
func (f *fixture) merchant(b merchantBuilder) *v1alpha1.Merchant {
	GinkgoHelper()
	f.apply(b.Merchant)
	f.awaitReady(b.Merchant)
	return b.Merchant
}

// key applies an ApiKey and waits until it is Ready.
func (f *fixture) key(b keyBuilder) *v1alpha1.ApiKey {
	GinkgoHelper()
	f.apply(b.ApiKey)
	f.awaitReady(b.ApiKey)
	return b.ApiKey
}

// applied applies an ApiKey, and waits for nothing.
func (f *fixture) applied(b keyBuilder) *v1alpha1.ApiKey {
	GinkgoHelper()
	f.apply(b.ApiKey)
	return b.ApiKey
}

// apply creates an object in the tenant's namespace, and waits for nothing.
func (f *fixture) apply(object client.Object) {
	GinkgoHelper()
	object.SetNamespace(f.namespace)
	Expect(f.kube.Create(context.Background(), object)).To(Succeed())
}

// read returns the object as it is now.
func (f *fixture) read(object client.Object) {
	GinkgoHelper()
	Expect(f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object)).To(Succeed())
}

// change edits an object and writes it as a person would.
func change[T client.Object](f *fixture, object T, edit func(T)) {
	GinkgoHelper()
	f.read(object)
	before := object.DeepCopyObject().(client.Object)
	edit(object)
	Expect(f.kube.Patch(context.Background(), object, client.MergeFrom(before))).To(Succeed())
}

func (f *fixture) delete(object client.Object) {
	GinkgoHelper()
	Expect(f.kube.Delete(context.Background(), object)).To(Succeed())
}

// awaitGone waits until the object, of that very UID, is no more.
func (f *fixture) awaitGone(object client.Object) {
	GinkgoHelper()
	uid := object.GetUID()
	Eventually(func() bool {
		err := f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || err == nil && object.GetUID() != uid
	}).Should(BeTrue(), "%s is gone", object.GetName())
}

// publishedSecret returns the Secret that publishes the key; nil: there is none.
func (f *fixture) publishedSecret(key *v1alpha1.ApiKey) *corev1.Secret {
	GinkgoHelper()
	return f.secret(f.credentials, published.KeyName(published.ID(key.UID)))
}

// secret returns a Secret; nil: there is none.
func (f *fixture) secret(namespace, name string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	err := f.kube.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return secret
}

// delivered returns the plaintext in a tenant's Secret.
func (f *fixture) delivered(name string) apikey.Key {
	GinkgoHelper()
	secret := f.secret(f.namespace, name)
	Expect(secret).NotTo(BeNil(), "Secret %s exists", name)
	key, err := apikey.Parse(string(secret.Data["apiKey"]))
	Expect(err).NotTo(HaveOccurred())
	return key
}

// record returns what is published of a key.
func (f *fixture) record(key *v1alpha1.ApiKey) published.KeyRecord {
	GinkgoHelper()
	secret := f.publishedSecret(key)
	Expect(secret).NotTo(BeNil(), "the key is published")
	record, err := published.DecodeKey(secret)
	Expect(err).NotTo(HaveOccurred())
	return record
}

// rotateOverHTTP does to the published Secret what POST /api/v1/keys/rotate does, and returns the new key.
func (f *fixture) rotateOverHTTP(key *v1alpha1.ApiKey) apikey.Key {
	GinkgoHelper()
	var fresh apikey.Key
	Eventually(func() error { // the operator may write in between
		secret := f.publishedSecret(key)
		record, err := published.DecodeKey(secret)
		Expect(err).NotTo(HaveOccurred())
		fresh, err = apikey.New(record.KeyID)
		Expect(err).NotTo(HaveOccurred())
		now := f.clock.Now()
		rotated := record.Rotated(published.Current{Digest: fresh.Digest(), Prefix: fresh.Prefix(), CreatedAt: now}, v1alpha1.RotationAPI, 0, now)
		update, err := published.EncodeKey(f.credentials, rotated)
		Expect(err).NotTo(HaveOccurred())
		update.ResourceVersion = secret.ResourceVersion
		return f.kube.Update(context.Background(), update)
	}).Should(Succeed())
	return fresh
}

// publishAnother publishes the first key of an ApiKey as somebody else would, and returns it.
func (f *fixture) publishAnother(name string) apikey.Key {
	GinkgoHelper()
	object := &v1alpha1.ApiKey{}
	Expect(f.kube.Get(context.Background(), types.NamespacedName{Namespace: f.namespace, Name: name}, object)).To(Succeed())
	merchant := &v1alpha1.Merchant{}
	Expect(f.kube.Get(context.Background(), types.NamespacedName{Namespace: f.namespace, Name: object.Spec.MerchantRef.Name}, merchant)).To(Succeed())
	key, err := apikey.New(published.ID(object.UID))
	Expect(err).NotTo(HaveOccurred())
	now := f.clock.Now()
	base := published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID(merchant.UID), State: object.Spec.State,
		Source: published.Source{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
	}
	record := base.Rotated(published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}, v1alpha1.RotationInitial, 0, now)
	secret, err := published.EncodeKey(f.credentials, record)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.kube.Create(context.Background(), secret)).To(Succeed())
	return key
}

// poke makes the operator reconcile an object once more and waits until a pass over its kind has ended. It
// touches what is published of it, or else the spec.
func (f *fixture) poke(object client.Object, controller string) {
	GinkgoHelper()
	before := passes(controller)
	touch := func(o client.Object) { o.SetAnnotations(map[string]string{"poked": strconv.Itoa(before)}) }
	newSpec := false
	f.read(object)
	switch object := object.(type) {
	case *v1alpha1.Merchant:
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = f.credentials, published.MerchantName(published.ID(object.UID))
		change(f, configMap, func(c *corev1.ConfigMap) { touch(c) })
	case *v1alpha1.ApiKey:
		if secret := f.publishedSecret(object); secret != nil {
			change(f, secret, func(s *secretObject) { touch(s) })
		} else {
			change(f, object, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(before % 86400)) })
			newSpec = true
		}
	}
	Eventually(func() int { return passes(controller) }).Should(BeNumerically(">", before), "a pass has ended")
	Eventually(func(g Gomega) { // it may be that over another object, and this one will write the status
		f.read(object)
		g.Expect(!newSpec || observedGeneration(object) == object.GetGeneration()).To(BeTrue(), "the new spec is observed")
	}).Should(Succeed())
}

// passes counts the passes that a controller has ended, in this process.
func passes(controller string) int {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	count := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == controller {
					count += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return int(count)
}

// events returns the reasons of the events about an object, with their notes.
func (f *fixture) events(object client.Object) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(f.kube.List(context.Background(), &list, client.InNamespace(f.namespace))).To(Succeed())
	var emitted []string
	for _, event := range list.Items {
		if event.Regarding.UID == object.GetUID() {
			emitted = append(emitted, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Note))
		}
	}
	return emitted
}

// secretObject shortens the edits of Secrets.
type secretObject = corev1.Secret

// awaitReady waits until kstatus, and so `kubectl wait` and Flux, say that the object is done.
func (f *fixture) awaitReady(object client.Object) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.CurrentStatus, v1alpha1.ReasonPublished)
}

// awaitUnusable waits until the spec of an ApiKey is in force and its key is refused, both for that reason.
func (f *fixture) awaitUnusable(key *v1alpha1.ApiKey, reason string) {
	GinkgoHelper()
	f.awaitStatus(key, kstatus.CurrentStatus, reason)
	Expect(condition(key, v1alpha1.UsableCondition)).To(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Reason", reason)))
}

// awaitStatus waits until kstatus says so of the present generation of the object, for that reason.
func (f *fixture) awaitStatus(object client.Object, status kstatus.Status, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(object)
		g.Expect(object.GetGeneration()).To(Equal(observedGeneration(object)), "the status is of this spec")
		ready := meta.FindStatusCondition(statusConditions(object), v1alpha1.ReadyCondition)
		g.Expect(ready).NotTo(BeNil())
		g.Expect(ready.Reason).To(Equal(reason), ready.Message)
		g.Expect(computed(g, object)).To(Equal(status))
	}).Should(Succeed())
	expectConformant(Default, object)
}

// expectConformance checks all objects of the fixture once they have come to rest.
func (f *fixture) expectConformance() {
	GinkgoHelper()
	for _, object := range f.objects() {
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object))).To(Succeed())
			expectConformant(g, object)
		}).Should(Succeed())
	}
}

// objects are all Merchants and ApiKeys of the fixture.
func (f *fixture) objects() []client.Object {
	GinkgoHelper()
	var all []client.Object
	for _, list := range []client.ObjectList{&v1alpha1.MerchantList{}, &v1alpha1.ApiKeyList{}} {
		Expect(f.kube.List(context.Background(), list, client.InNamespace(f.namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(object runtime.Object) error {
			all = append(all, object.(client.Object))
			return nil
		})).To(Succeed())
	}
	return all
}

// expectConformant checks the rules by which people and tools read a status, on one object.
func expectConformant(g Gomega, object client.Object) {
	GinkgoHelper()
	conditions := statusConditions(object)
	ready := meta.FindStatusCondition(conditions, v1alpha1.ReadyCondition)
	g.Expect(ready).NotTo(BeNil(), "Ready is always present")
	if _, isKey := object.(*v1alpha1.ApiKey); isKey {
		g.Expect(meta.FindStatusCondition(conditions, v1alpha1.UsableCondition)).NotTo(BeNil(), "Usable is always present")
	}
	abnormal := 0
	for _, condition := range conditions {
		if condition.Type == v1alpha1.WebhookHealthyCondition {
			continue // the dispatcher's, who knows no generation
		}
		g.Expect(condition.ObservedGeneration).To(Equal(observedGeneration(object)), "%s is of the observed spec", condition.Type)
		g.Expect(condition.Message).NotTo(BeEmpty())
		if condition.Type != v1alpha1.ReconcilingCondition && condition.Type != v1alpha1.StalledCondition {
			continue
		}
		abnormal++
		g.Expect(condition.Status).To(Equal(metav1.ConditionTrue), "%s is present only while true", condition.Type)
		g.Expect(condition.Reason).To(Equal(ready.Reason), "all conditions give one reason")
	}
	g.Expect(abnormal).To(BeNumerically("<=", 1), "it waits or is stalled, not both")
	if observedGeneration(object) != object.GetGeneration() {
		return
	}
	want := kstatus.CurrentStatus
	switch {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.StalledCondition):
		want = kstatus.FailedStatus
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ReconcilingCondition):
		want = kstatus.InProgressStatus
	}
	if object.GetDeletionTimestamp().IsZero() {
		g.Expect(computed(g, object)).To(Equal(want), "kstatus reads the same as people")
	}
	g.Expect(meta.IsStatusConditionTrue(conditions, v1alpha1.ReadyCondition)).To(Equal(want == kstatus.CurrentStatus), "kubectl wait reads the same as kstatus")
}

func computed(g Gomega, object client.Object) kstatus.Status {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	g.Expect(err).NotTo(HaveOccurred())
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: content})
	g.Expect(err).NotTo(HaveOccurred())
	return result.Status
}

func statusConditions(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.Merchant:
		return o.Status.Conditions
	case *v1alpha1.ApiKey:
		return o.Status.Conditions
	}
	return nil
}

func observedGeneration(object client.Object) int64 {
	switch o := object.(type) {
	case *v1alpha1.Merchant:
		return o.Status.ObservedGeneration
	case *v1alpha1.ApiKey:
		return o.Status.ObservedGeneration
	}
	return 0
}

func (f *fixture) awaitWaiting(key *v1alpha1.ApiKey) {
	GinkgoHelper()
	f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonMerchantNotFound)
}

// condition returns a condition of the object as it was read last; nil: it has none of that type.
func condition(object client.Object, kind string) *metav1.Condition {
	return meta.FindStatusCondition(statusConditions(object), kind)
}

func (f *fixture) awaitStalled(object client.Object, reason string) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.FailedStatus, reason)
}

func (f *fixture) awaitFailed(object client.Object) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.InProgressStatus, v1alpha1.ReasonFailed)
}

func readyMessage(object client.Object) string {
	return meta.FindStatusCondition(statusConditions(object), v1alpha1.ReadyCondition).Message
}

// readyReason is the reason of Ready; empty: it has no conditions yet.
func readyReason(object client.Object) string {
	if ready := meta.FindStatusCondition(statusConditions(object), v1alpha1.ReadyCondition); ready != nil {
		return ready.Reason
	}
	return ""
}
