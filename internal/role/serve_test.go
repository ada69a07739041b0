package role

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const patience = 30 * time.Second

// fixture is a role whose Kubernetes API is not there, and which needs none.
type fixture struct {
	*Role

	t               *testing.T
	redis           *redistest.Server
	address, opsURL string // of its listener
	service         Service
	stop            context.CancelFunc
	ended           chan error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const nowhere = "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, redis: redistest.Start(t), address: freeAddress(t), ended: make(chan error, 1)}
	options := DefaultOptions()
	options.Kubeconfig, options.RedisURL, options.Ops.Address = kubeconfig, f.redis.URL(), freeAddress(t)
	options.DrainDelay, options.Log = 0, slog.New(slog.DiscardHandler)
	f.opsURL = "http://" + options.Ops.Address
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.Role, err = Open(t.Context(), "test", options, redis.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.service = Service{Sync: func(context.Context) error { return nil }}
	return f
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func (f *fixture) listen(handle http.HandlerFunc) {
	f.service.Listeners = append(f.service.Listeners, httpserver.Options{Name: "test", Address: f.address, Handler: handle, Log: f.options.Log, Registerer: f.Registry})
}

func (f *fixture) start() {
	ctx, stop := context.WithCancel(f.t.Context())
	f.stop = stop
	f.t.Cleanup(stop)
	go func() { f.ended <- f.Serve(ctx, f.service) }()
}

func (f *fixture) end() error {
	f.t.Helper()
	select {
	case err := <-f.ended:
		return err
	case <-time.After(patience):
		f.t.Fatal("Serve does not return")
		return nil
	}
}

// awaitPhase waits until /readyz names the phase.
func (f *fixture) awaitPhase(phase string) {
	f.t.Helper()
	await.Until(f.t, patience, "the role is "+phase, func() bool {
		status, body := f.get(f.opsURL + "/readyz")
		return strings.Contains(body, `"phase":"`+phase+`"`) && (status == http.StatusOK) == (phase == "serving")
	})
}

// get returns status 0 if there is no answer.
func (f *fixture) get(url string) (status int, body string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// The listener opens when the role has synced. It is ready when Redis has answered. In a drain it finishes what is in progress, and what
// runs in the background ends last.
func TestServe_Order(t *testing.T) {
	f := newFixture(t)
	synced, started, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var order []string
	f.service.Sync = Closed(synced)
	f.service.Background = []func(context.Context){func(ctx context.Context) {
		<-ctx.Done()
		order = append(order, "background ended")
	}}
	f.service.Finish = func(context.Context) { order = append(order, "requests finished") }
	f.listen(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	f.redis.Stop()
	f.start()
	f.awaitPhase("syncing")
	if status, _ := f.get("http://" + f.address); status != 0 {
		t.Errorf("the listener answers %d before the role has synced", status)
	}
	close(synced)
	answer := make(chan string, 1)
	await.Until(t, patience, "the listener is open", func() bool {
		connected, err := net.Dial("tcp", f.address)
		if err == nil {
			_ = connected.Close()
		}
		return err == nil
	})
	f.awaitPhase("syncing") // without Redis
	f.redis.Start()
	f.awaitPhase("serving")
	go func() {
		_, body := f.get("http://" + f.address)
		answer <- body
	}()
	<-started
	f.stop()
	f.awaitPhase("draining")
	<-f.Draining()
	close(finish)
	if err := f.end(); err != nil {
		t.Errorf("a clean drain: %v", err)
	}
	if body := <-answer; body != "done" {
		t.Errorf("the request in progress gets %q", body)
	}
	if got := strings.Join(order, ", "); got != "requests finished, background ended" {
		t.Errorf("the order: %s", got)
	}
}

func TestServe_StoppedBeforeItHasSynced(t *testing.T) {
	f := newFixture(t)
	f.service.Sync = Closed(nil)
	f.start()
	f.awaitPhase("syncing")
	f.stop()
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

func TestServe_AddressInUse(t *testing.T) {
	f := newFixture(t)
	f.listen(http.NotFound)
	f.listen(http.NotFound)
	f.start()
	if err := f.end(); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
}

// Work is what a role without listeners does. Its error is the role's.
func TestServe_Work(t *testing.T) {
	f := newFixture(t)
	aborted := errors.New("aborted")
	f.service.Work = func(ctx context.Context) error {
		<-ctx.Done()
		return aborted
	}
	f.start()
	f.awaitPhase("serving")
	f.stop()
	if err := f.end(); !errors.Is(err, aborted) {
		t.Error(err)
	}
	<-f.Draining()
}
