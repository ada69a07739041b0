package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// accepts reports whether something accepts connections.
func accepts(url string) bool {
	connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// wantEnd waits for Run and returns its error.
func (r *replica) wantEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		t.Fatal("Run did not end")
		return nil
	}
}

// Nothing is served before the directory has synced.
func TestRun_BeforeSync(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	f.cutOff = true
	r := f.launch()
	r.awaitProbes()
	plain(t, http.MethodGet, r.ops+"/healthz", "").want(t, http.StatusOK)
	got := plain(t, http.MethodGet, r.ops+"/readyz", "").want(t, http.StatusServiceUnavailable)
	if got.body["phase"] != "syncing" {
		t.Errorf("/readyz says %s", got.raw)
	}
	if r.listening("public") != "" || r.listening("internal") != "" {
		t.Error("a listener is open to requests")
	}
	r.proxy.Restore()
	r.awaitReady()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestRun_StopBeforeSync(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cutOff = true
	r := f.launch()
	r.awaitProbes()
	r.cancel()
	if err := r.wantEnd(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRun_StopDuringRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	body, rest := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+sessions, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	answered := make(chan result, 1)
	go func() { answered <- r.send(request) }()
	if _, err := io.WriteString(rest, `{"amountCents":`); err != nil { // returns when the server's side has it, or is about to
		t.Fatal(err)
	}
	eventually(t, "the request is under way", func() bool { return r.metric("merchant_operator_http_requests_in_flight") == "1" })

	r.cancel()
	eventually(t, "the listener is closed", func() bool { return !accepts(r.url) })
	select {
	case err := <-r.ended:
		t.Fatalf("Run ended before the request did: %v", err)
	default:
	}
	if _, err := io.WriteString(rest, `1}`); err != nil {
		t.Fatal(err)
	}
	_ = rest.Close()
	(<-answered).want(t, http.StatusCreated)
	if err := r.wantEnd(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRun_Drain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.DrainDelay = 10 * time.Second }) // a busy machine looks in time
	if r.call(http.MethodGet, me, key, "").last {
		t.Error("the connection was closed before the drain")
	}
	r.cancel()
	eventually(t, "the replica is unready", func() bool { return getStatus(r.ops+"/readyz") == http.StatusServiceUnavailable })
	got := r.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // load balancers have not noticed yet
	if !got.last {
		t.Error("a response without Connection: close")
	}
	if getStatus(r.ops+"/healthz") != http.StatusOK {
		t.Error("a draining replica must not be killed as unhealthy")
	}
	if err := r.wantEnd(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if accepts(r.url) || accepts(r.internal) || accepts(r.ops) {
		t.Error("a listener is still open")
	}
}

func TestRun_AddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, change := range map[string]func(*apiserver.Options){
		"public":   func(o *apiserver.Options) { o.PublicAddress = taken.Addr().String() },
		"internal": func(o *apiserver.Options) { o.InternalAddress = taken.Addr().String() },
		"ops":      func(o *apiserver.Options) { o.Ops.Address = taken.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			err := newFixture(t).launch(change).wantEnd(t)
			if err == nil || !strings.Contains(err.Error(), "listen for "+name+" requests") || !strings.Contains(err.Error(), taken.Addr().String()) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestRun_RedisThatMayEvict(t *testing.T) {
	t.Parallel()
	own := redistest.Start(t, "--maxmemory-policy", "volatile-lru")
	err := newFixture(t).launch(func(o *apiserver.Options) { o.RedisURL = own.URL() }).wantEnd(t)
	if !errors.Is(err, redis.ErrEviction) {
		t.Errorf("Run: %v, want ErrEviction", err)
	}
}

func TestOptions_Invalid(t *testing.T) {
	for name, change := range map[string]func(*apiserver.Options){
		"no Redis":                    func(o *apiserver.Options) { o.RedisURL = "" },
		"no namespace":                func(o *apiserver.Options) { o.CredentialsNamespace = "" },
		"no public address":           func(o *apiserver.Options) { o.PublicAddress = "" },
		"no internal address":         func(o *apiserver.Options) { o.InternalAddress = "" },
		"no ops address":              func(o *apiserver.Options) { o.Ops.Address = "" },
		"no QR scheme":                func(o *apiserver.Options) { o.QRScheme = "" },
		"a QR scheme with ://":        func(o *apiserver.Options) { o.QRScheme = "pay://" },
		"a QR scheme of browsers":     func(o *apiserver.Options) { o.QRScheme = "javascript" },
		"an unknown QR content":       func(o *apiserver.Options) { o.QRContent = "link" },
		"an app without a session":    func(o *apiserver.Options) { o.PaymentAppURL = "https://bank.example" },
		"QR links without a URL":      func(o *apiserver.Options) { o.QRContent = apiserver.QRContentLink },
		"a public URL over HTTP":      func(o *apiserver.Options) { o.PublicURL = "http://pay.example.com" },
		"a public URL without a host": func(o *apiserver.Options) { o.PublicURL = "https://" },
		"a public URL with a path":    func(o *apiserver.Options) { o.PublicURL = "https://example.com/pay" },
		"a public URL with a query":   func(o *apiserver.Options) { o.PublicURL = "https://example.com?x" },
		"a public URL with user info": func(o *apiserver.Options) { o.PublicURL = "https://me@example.com" },
		"an invalid proxy":            func(o *apiserver.Options) { o.TrustedProxies = []netip.Prefix{{}} },
		"a proxy of 4in6": func(o *apiserver.Options) {
			o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
		},
		"no public rate":         func(o *apiserver.Options) { o.PublicRateLimit = v1alpha1.RateLimit{Burst: 1} },
		"no public burst":        func(o *apiserver.Options) { o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1} },
		"a negative drain delay": func(o *apiserver.Options) { o.DrainDelay = -1 },
		"no shutdown timeout":    func(o *apiserver.Options) { o.ShutdownTimeout = 0 },
		"no log":                 func(o *apiserver.Options) { o.Log = nil },
		"no clock":               func(o *apiserver.Options) { o.Now = nil },
		"too short a retention":  func(o *apiserver.Options) { o.SessionRetention = time.Hour },
		"a bad Redis URL":        func(o *apiserver.Options) { o.RedisURL = "http://user:secret@redis" },
		"a kubeconfig not there": func(o *apiserver.Options) { o.Kubeconfig = "/nowhere/kubeconfig" },
	} {
		t.Run(name, func(t *testing.T) {
			options := apiserver.DefaultOptions()
			options.RedisURL, options.Log = sharedRedis.URL(), slog.New(slog.DiscardHandler)
			change(&options)
			err := apiserver.Run(context.Background(), options)
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestOptions_Defaults(t *testing.T) {
	options := apiserver.DefaultOptions()
	options.RedisURL = "redis://redis:6379"
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
}

// metric returns the value of a metric as it is written, with its labels.
func (r *replica) metric(name string) string {
	r.t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(plain(r.t, http.MethodGet, r.ops+"/metrics", "").raw)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// The options reach the room of payers.
func TestOptions_Payers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	plain := f.start()
	r := f.start(func(o *apiserver.Options) {
		o.QRContent, o.PublicURL, o.PaymentAppURL = apiserver.QRContentLink, "https://pay.example.com/", "https://bank.example/pay?session={sessionId}"
		o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 3}
	})
	id := r.create(key)
	if page := r.payerPage(t, id); !strings.Contains(page, `href="https://bank.example/pay?session=`+id+`"`) {
		t.Errorf("the button leads elsewhere: %s", page)
	}
	code := r.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").want(t, http.StatusOK)
	if bytes.Equal(code.raw, plain.call(http.MethodGet, "/pay/"+id+"/qr.svg", "", "").want(t, http.StatusOK).raw) {
		t.Error("the QR code holds the payload")
	}
	eventually(t, "the limit of the address is exceeded", func() bool {
		return r.call(http.MethodGet, "/pay/"+id, "", "").status == http.StatusTooManyRequests
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
	key := f.key("till", acme)
	r := f.start(trustLoopback)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "X-Forwarded-For", "203.0.113.7").text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	r.call("INVENTED", public+"/"+id, "", "").want(t, http.StatusMethodNotAllowed)
	r.call(http.MethodGet, "/secret/path", "", "").want(t, http.StatusNotFound)
	r.call(http.MethodGet, me, "", "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "198.51.100.1").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, f.newKey(key[8:20]).Reveal(), "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusUnauthorized)

	for name, want := range map[string]string{
		`merchant_operator_http_request_duration_seconds_count{method="POST",route="/api/v1/sessions",status="201"}`:              "1",
		`merchant_operator_http_request_duration_seconds_count{method="GET",route="/api/v1/public/sessions/{id}",status="200"}`:   "1",
		`merchant_operator_http_request_duration_seconds_count{method="other",route="/api/v1/public/sessions/{id}",status="405"}`: "1",
		`merchant_operator_http_request_duration_seconds_count{method="GET",route="",status="404"}`:                               "1",
		`merchant_operator_http_unauthorized_total{reason="missing"}`:                                                             "1",
		`merchant_operator_http_unauthorized_total{reason="address_not_allowed"}`:                                                 "1",
		`merchant_operator_http_unauthorized_total{reason="rotated"}`:                                                             "1",
		`merchant_operator_directory_objects{kind="key"}`:                                                                         "1",
		`merchant_operator_directory_objects{kind="merchant"}`:                                                                    "1",
		`merchant_operator_redis_up`: "1",
	} {
		if got := r.metric(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	all := string(plain(t, http.MethodGet, r.ops+"/metrics", "").raw)
	for _, secret := range []string{id, "INVENTED", "secret", key, acme.MerchantID} {
		if strings.Contains(all, secret) {
			t.Errorf("the metrics hold %s", secret)
		}
	}
}

// A replica that Redis never answered may not be able to reach it at all: it waits, and is not ready.
func TestRun_RedisDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	own.Stop()
	r := f.launch(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	r.awaitProbes()
	eventually(t, "it listens", func() bool { return r.listening("public") != "" })
	r.url = r.listening("public")
	r.call(http.MethodGet, me, key, "").want(t, http.StatusServiceUnavailable)
	if status := getStatus(r.ops + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d before Redis has answered once", status)
	}
	own.Start()
	r.awaitReady()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestRun_MissingCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.launch(func(o *apiserver.Options) { o.InternalCertificateDir = t.TempDir() })
	select {
	case err := <-r.ended:
		if err == nil || !strings.Contains(err.Error(), "--internal-cert-dir") {
			t.Errorf("Run ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on")
	}
}
