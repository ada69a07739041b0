package dispatcher

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// launched is a dispatcher as main starts it, behind a proxy to the Kubernetes API.
type launched struct {
	ops   string
	proxy *kubeproxy.Proxy
	stop  context.CancelFunc
	ended chan error
}

func (f testFixture) launch(t *testing.T, c dispatchertest.Cluster, change ...func(*Options)) launched {
	t.Helper()
	proxy, err := kubeproxy.Start(dispatchertest.Config)
	dispatchertest.Must(t, err)
	t.Cleanup(proxy.Close)
	port, err := freeport.Choose()
	dispatchertest.Must(t, err)
	options := DefaultOptions()
	options.CredentialsNamespace = c.Namespace
	options.Kubeconfig, err = proxy.Kubeconfig(t.TempDir(), "dispatcher")
	dispatchertest.Must(t, err)
	options.RedisURL = f.Server.URL()
	options.Ops.Address = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	options.AllowHTTP, options.Egress.Allow = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	options.Log = slog.New(slog.NewTextHandler(f.Log, nil))
	for _, change := range change {
		change(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := launched{"http://" + options.Ops.Address, proxy, cancel, make(chan error, 1)}
	proxy.Cut() // until the test lets it see the cluster
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		l.ended <- Run(ctx, options)
	}()
	t.Cleanup(func() {
		cancel()
		proxy.Restore()
		<-ran
	})
	return l
}

// get returns status and body of a probe; 0 as long as nobody answers.
func (l launched) get(t *testing.T, path string) (int, string) {
	t.Helper()
	answer, err := http.Get(l.ops + path)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	dispatchertest.Must(t, err)
	return answer.StatusCode, string(body)
}

func TestRun_WaitsForTheIndex(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := c.Merchant(t, "acme", shop.URL)
	c.Publish(t, acme)
	id := f.Event(t, published.ID(acme.UID))
	bucket := session.MerchantBucket(published.ID(acme.UID))

	l := f.launch(t, c)
	dispatchertest.Eventually(t, "probes are answered", func() bool { status, _ := l.get(t, "/healthz"); return status == http.StatusOK })
	if status, body := l.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "syncing") {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	if backlog, err := f.Outbox.Backlog(t.Context(), bucket); err != nil || backlog.Due != 1 {
		t.Errorf("the backlog is %+v, %v", backlog, err)
	}
	if f.LeasedTo(t, bucket, id) {
		t.Error("it took an event that it could not place")
	}
	l.proxy.Restore()
	shop.AwaitEvent(t, 0, id)
	dispatchertest.Eventually(t, "it is ready", func() bool { status, _ := l.get(t, "/readyz"); return status == http.StatusOK })
	dispatchertest.Eventually(t, "it counts", func() bool {
		_, metrics := l.get(t, "/metrics")
		return strings.Contains(metrics, `merchant_operator_webhook_attempts_total{result="delivered"} 1`) &&
			strings.Contains(metrics, `merchant_operator_webhook_events_total{kind="session.cancelled",outcome="delivered"} 1`)
	})
	l.stop()
	if err := <-l.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, secret := range []string{"whsec_", shop.URL} {
		if strings.Contains(f.Log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
}

func TestRun_ReportsAGoneEndpoint(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusGone))
	acme := c.Merchant(t, "acme", shop.URL)
	c.Publish(t, acme)
	f.Event(t, published.ID(acme.UID))
	f.launch(t, c).proxy.Restore()
	dispatchertest.Eventually(t, "the status of the Merchant is written", func() bool {
		condition := c.Conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
		return condition.Status == metav1.ConditionFalse && condition.Reason == "EndpointGone"
	})
	dispatchertest.Eventually(t, "an event is written", func() bool { return len(c.Events(t)) == 1 })
}

func TestRun_StopsWithoutACluster(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	l := f.launch(t, c)
	dispatchertest.Eventually(t, "probes are answered", func() bool { status, _ := l.get(t, "/healthz"); return status == http.StatusOK })
	l.stop()
	if err := <-l.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRun_StartErrors(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	evicting := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	for want, change := range map[string]func(*Options){
		"set --redis-url or REDIS_URL": func(o *Options) { o.RedisURL = "" },
		"REDIS_URL must be redis://":   func(o *Options) { o.RedisURL = "http://127.0.0.1" },
		"noeviction":                   func(o *Options) { o.RedisURL = evicting.URL() },
		"load the kubeconfig":          func(o *Options) { o.Kubeconfig = "/nowhere/kubeconfig" },
		"listen for ops requests":      func(o *Options) { o.Ops.Address = "192.0.2.1:9090" },
		"--webhook-allow-cidrs":        func(o *Options) { o.Egress.Allow = []netip.Prefix{{}} },
		"--smtp-url must be":           func(o *Options) { o.MailServer.URL = "mail.example" },
		"--lease must be at least":     func(o *Options) { o.Lease = time.Second },
	} {
		l := f.launch(t, c, change)
		l.proxy.Restore()
		select {
		case err := <-l.ended:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want it to say %q", err, want)
			}
		case <-time.After(dispatchertest.Patience):
			t.Fatalf("Run did not end, and should say %q", want)
		}
	}
}

// A mail server that accepts connections and says nothing delays no webhook.
func TestRun_SilentMailServer(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	dispatchertest.Must(t, err)
	defer func() { _ = silent.Close() }()
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := c.Merchant(t, "acme", shop.URL)
	c.Publish(t, acme)
	sessions := storetest.OpenWith(t, f.Server.URL(), store.Options{Receipts: true})
	asks := storetest.Merchant()
	asks.MerchantID = published.ID(acme.UID)
	const payments = 20 // more than mails are sent at a time
	for range payments {
		request := storetest.NewSession()
		request.Charge.CustomerEmail = "ada@example.org"
		_, created, err := sessions.CreateSession(t.Context(), asks, request)
		dispatchertest.Must(t, err)
		_, err = sessions.Settle(t.Context(), created.Session.ID, session.Payment{Ref: "a", Outcome: session.Completed, AmountCents: request.Charge.AmountCents})
		dispatchertest.Must(t, err)
	}
	l := f.launch(t, c, func(o *Options) {
		o.MailServer = MailServer{URL: "smtp://" + silent.Addr().String(), From: "receipts@pay.example"}
		o.ShutdownTimeout = time.Second
	})
	l.proxy.Restore()
	shop.Await(t, payments)
	if _, metrics := l.get(t, "/metrics"); !strings.Contains(metrics, `merchant_operator_receipts_total{outcome="sent"} 0`) {
		t.Errorf("a receipt was sent, or none is counted:\n%s", metrics)
	}
}
