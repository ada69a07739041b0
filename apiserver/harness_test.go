package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
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
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

func runTests(m *testing.M) (err error) {
	environment, stop, err := kubetest.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	kubeConfig = environment.Config
	kubeConfig.QPS = -1
	if kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return err
	}
	server, closeRedis, err := redistest.New()
	if err != nil {
		return err
	}
	defer closeRedis()
	sharedRedis = server
	m.Run()
	return nil
}

// replica is one running API server, seen from outside.
type replica struct {
	t                  *testing.T
	name               string
	url, internal, ops string           // once it listens
	proxy              *kubeproxy.Proxy // between it and the Kubernetes API
	log                *logBuffer
	cancel             context.CancelFunc
	ended              chan error // receives what Run returned
}

// start runs an API server on the scene's namespace and returns when it is ready. It stops with t.
func (s *scene) start(change ...func(*apiserver.Options)) *replica {
	s.t.Helper()
	r := s.launch(change...)
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
func (s *scene) launch(change ...func(*apiserver.Options)) *replica {
	s.t.Helper()
	proxy, err := kubeproxy.Start(s.kubeConfig)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(proxy.Close)
	if s.cutOff {
		proxy.Cut()
	}
	options := apiserver.DefaultOptions()
	if options.Kubeconfig, err = proxy.Kubeconfig(s.t.TempDir(), "replica"); err != nil {
		s.t.Fatal(err)
	}
	options.CredentialsNamespace = s.namespace
	options.RedisURL = sharedRedis.URL()
	options.PublicAddress, options.InternalAddress, options.OpsAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	options.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000}
	options.DrainDelay = 0
	s.replicas++
	name := fmt.Sprintf("replica-%d", s.replicas)
	options.Log = slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("replica", name)
	for _, c := range change {
		c(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{t: s.t, name: name, proxy: proxy, log: s.log, cancel: cancel, ended: make(chan error, 1)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.ended <- apiserver.Run(ctx, options)
	}()
	s.t.Cleanup(func() {
		cancel()
		proxy.Mend()
		select {
		case <-stopped:
		case <-time.After(patience):
			s.t.Error("Run did not end")
		}
	})
	return r
}

// answer is what a caller sees.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any // nil unless the answer is a JSON object
	last   bool           // on its connection
}

// call sends one request and checks the answer against the OpenAPI document. headers are pairs of
// name and value.
func (r *replica) call(method, path, key, body string, headers ...string) answer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.send(request)
}

func (r *replica) send(request *http.Request) answer {
	r.t.Helper()
	response, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := read(r.t, response)
	checkDocumented(r.t, request, got)
	return got
}

// plain asks a listener the document is not about.
func plain(t *testing.T, method, url, key string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
}

func read(t *testing.T, response *http.Response) answer {
	t.Helper()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{status: response.StatusCode, header: response.Header, raw: raw, last: response.Close}
	if bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &got.body); err != nil {
			t.Fatalf("status %d with a body that is no JSON: %s", got.status, raw)
		}
	}
	return got
}

// client shows redirects instead of following them.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       patience,
}

// want fails the test unless the answer has the status.
func (a answer) want(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

func (a answer) wantError(t *testing.T, status int, message string) {
	t.Helper()
	if a.want(t, status).body["error"] != message {
		t.Errorf("error %q, want %q", a.body["error"], message)
	}
}

// text returns a field of the body.
func (a answer) text(name string) string {
	value, _ := a.body[name].(string)
	return value
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited %s in vain until %s", patience, what)
		case <-tick.C:
		}
	}
}

// statusOf is 0 when nothing answers.
func statusOf(url string) int {
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// logBuffer keeps what replicas logged.
type logBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
