package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

// What all tests share. Each has a namespace, hence merchants, of its own.
var (
	kubeConfig  *rest.Config
	kube        *kubernetes.Clientset
	sharedRedis *redistest.Server
)

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if flag.Lookup("test.fuzz").Value.String() != "" {
		m.Run() // needs nothing of this, and each of its workers would start it all
		return
	}
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

func runTests(m *testing.M) error {
	environment, stop, err := kubetest.New()
	if err != nil {
		return err
	}
	kubeConfig = environment.Config
	kubeConfig.QPS = -1
	if kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return errors.Join(err, stop())
	}
	server, closeRedis, err := redistest.New()
	if err != nil {
		return errors.Join(err, stop())
	}
	sharedRedis = server
	leaks.Run(m, func() error { closeRedis(); return stop() })
	return nil
}

// replica is one running API server, seen from outside.
type replica struct {
	t                  *testing.T
	name               string
	url, internal, ops string           // once it listens
	proxy              *kubeproxy.Proxy // between it and the Kubernetes API
	log                *logtest.Buffer
	cancel             context.CancelFunc
	ended              chan error // receives what Run returned
}

// start runs an API server on the fixture's namespace and returns when it is ready. It stops with t.
func (f *fixture) start(change ...func(*apiserver.Options)) *replica {
	f.t.Helper()
	r := f.launch(change...)
	r.awaitReady()
	return r
}

// awaitProbes returns when probes are answered.
func (r *replica) awaitProbes() {
	r.t.Helper()
	eventually(r.t, "probes are answered", func() bool {
		select {
		case err := <-r.ended:
			r.t.Fatalf("Run ended: %v\n%s", err, r.log)
		default:
		}
		r.ops = r.listening("ops")
		return r.ops != ""
	})
}

// awaitReady returns when the replica serves requests.
func (r *replica) awaitReady() {
	r.t.Helper()
	r.awaitProbes()
	eventually(r.t, "the replica is ready", func() bool { return statusOf(r.ops+"/readyz") == http.StatusOK })
	r.url, r.internal = r.listening("public"), r.listening("internal")
}

// awaitChecked returns when the replica has compared what it was first told with Redis, which takes scripts of its own.
func (r *replica) awaitChecked() {
	r.t.Helper()
	eventually(r.t, "the keys are checked", func() bool { return r.metric("merchant_operator_directory_unchecked_keys") == "0" })
}

// listening returns the base URL of a listener, from the log; empty as long as it is not open.
func (r *replica) listening(name string) string {
	for line := range strings.Lines(r.log.String()) {
		var entry struct {
			Message  string `json:"msg"`
			Replica  string `json:"replica"`
			Listener string `json:"for"`
			Address  string `json:"address"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "listening" &&
			entry.Replica == r.name && entry.Listener == name {
			return "http://" + entry.Address
		}
	}
	return ""
}

// launch is start without waiting.
func (f *fixture) launch(change ...func(*apiserver.Options)) *replica {
	f.t.Helper()
	proxy, err := kubeproxy.Start(f.kubeConfig)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(proxy.Close)
	if f.cutOff {
		proxy.Cut()
	}
	options := apiserver.DefaultOptions()
	if options.Kubeconfig, err = proxy.Kubeconfig(f.t.TempDir(), "replica"); err != nil {
		f.t.Fatal(err)
	}
	options.CredentialsNamespace = f.namespace
	options.RedisURL = sharedRedis.URL()
	options.PublicAddress, options.InternalAddress, options.Ops.Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	options.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000}
	options.DrainDelay = 0
	f.replicas++
	name := fmt.Sprintf("replica-%d", f.replicas)
	options.Log = slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("replica", name)
	for _, c := range change {
		c(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{t: f.t, name: name, proxy: proxy, log: f.log, cancel: cancel, ended: make(chan error, 1)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.ended <- apiserver.Run(ctx, options)
	}()
	f.t.Cleanup(func() {
		cancel()
		proxy.Mend()
		select {
		case <-stopped:
		case <-time.After(patience):
			f.t.Error("Run did not end")
		}
	})
	return r
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, patience, what, holds)
}

// fixture is one test's credentials namespace. It plays the operator.
type fixture struct {
	t          *testing.T
	namespace  string
	kubeConfig *rest.Config    // of the replicas
	cutOff     bool            // replicas start without a way to the Kubernetes API
	log        *logtest.Buffer // of the replicas
	replicas   int             // started so far
	issued     []string        // keys
}

// newFixture also sees to it that no key of the fixture gets into the log of a replica.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	namespace, err := kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "credentials-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, namespace: namespace.Name, kubeConfig: kubeConfig, log: &logtest.Buffer{}}
	t.Cleanup(func() {
		logged := f.log.String()
		for _, key := range f.issued {
			if strings.Contains(logged, key) || strings.Contains(logged, apikey.DigestOf(key).Hex()) {
				t.Fatalf("a key or its digest is in the log:\n%s", logged)
			}
		}
	})
	return f
}

// merchant publishes a merchant with limits no test runs into.
func (f *fixture) merchant(name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	f.t.Helper()
	record := published.MerchantRecord{
		MerchantID:  published.ID(types.UID(f.namespace + "/" + name)),
		Namespace:   "shops",
		Name:        name,
		DisplayName: "Acme " + name,
		State:       v1alpha1.MerchantActive,
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	for _, c := range change {
		c(&record)
	}
	configMap := f.configMap(record)
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return record
}

// changeMerchant publishes another version.
func (f *fixture) changeMerchant(record published.MerchantRecord) {
	f.t.Helper()
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(f.t.Context(), f.configMap(record), metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) configMap(record published.MerchantRecord) *corev1.ConfigMap {
	f.t.Helper()
	configMap, err := published.EncodeMerchant(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	return configMap
}

// key publishes a key of the merchant and returns it in plaintext.
func (f *fixture) key(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	f.t.Helper()
	uid := types.UID(f.namespace + "/" + name)
	key := f.newKey(published.ID(uid))
	now := time.Now().UTC()
	record := published.KeyRecord{
		KeyID:        key.ID(),
		MerchantID:   merchant.MerchantID,
		Source:       published.Source{Namespace: "shops", Name: name, UID: uid},
		Generation:   1,
		Revision:     1,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	}
	for _, c := range change {
		c(&record)
	}
	secret, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(f.namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return key.Reveal()
}

// newKey makes a key that is not published.
func (f *fixture) newKey(keyID string) apikey.Key {
	f.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		f.t.Fatal(err)
	}
	f.issued = append(f.issued, key.Reveal())
	return key
}

// secretOf reads the published Secret of a key.
func (f *fixture) secretOf(key string) *corev1.Secret {
	f.t.Helper()
	parsed, err := apikey.Parse(key)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, err := kube.CoreV1().Secrets(f.namespace).Get(f.t.Context(), published.KeyName(parsed.ID()), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

func (f *fixture) updateSecret(secret *corev1.Secret) {
	f.t.Helper()
	if _, err := kube.CoreV1().Secrets(f.namespace).Update(f.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}
