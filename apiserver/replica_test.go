package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// replica is one running API server, seen from outside.
type replica struct {
	t                  *testing.T
	name               string
	url, internal, ops string           // once it listens
	proxy              *kubeproxy.Proxy // between it and the Kubernetes API
	log                *logtest.Buffer
	client             *http.Client
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
	options.RedisURL, options.RedisTimeout = storetest.UserURL(f.t, sharedRedis), storetest.Timeout
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
	r := &replica{t: f.t, name: name, proxy: proxy, log: f.log, client: client, cancel: cancel, ended: make(chan error, 1)}
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

// awaitChecked returns when the replica has compared its first list of keys with Redis, which runs scripts of its own.
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

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, patience, what, holds)
}
