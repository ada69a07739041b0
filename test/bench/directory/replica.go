package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/freeport"
)

// replica is one of the API, which knows one population.
type replica struct {
	*process.Process

	address, ops string
	// untilReady is the time from its start until it said that it was ready.
	untilReady time.Duration
	end        func() error
}

// startReplica returns when the replica is ready.
func (s *stand) startReplica(ctx context.Context, kubeconfig string, p *population) (*replica, error) {
	var addresses [3]string
	for i := range addresses {
		port, err := freeport.Choose()
		if err != nil {
			return nil, err
		}
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	const unlimited = "1000000"
	began := time.Now()
	started, _, err := process.Start(ctx, s.log, nil, s.settings.binary, "apiserver",
		"--kubeconfig", kubeconfig, "--credentials-namespace", p.namespace, "--redis-url", s.redis.URL(),
		"--public-address", addresses[0], "--internal-address", addresses[1], "--ops-address", addresses[2], "--pprof",
		"--drain-delay", "0s")
	if err != nil {
		return nil, err
	}
	r := &replica{Process: started, address: addresses[0], ops: "http://" + addresses[2]}
	r.end = sync.OnceValue(func() error { started.Stop(); return nil })
	s.onStop(r.end)
	if err := process.Eventually(ctx, func() error { return get(ctx, r.ops+"/readyz") }); err != nil {
		return nil, fmt.Errorf("start a replica that knows %d keys: %w; its log is %s", len(p.keys), err, s.log.Name())
	}
	r.untilReady = time.Since(began)
	return r, nil
}

// heap is what is alive in the replica, in bytes.
func (r *replica) heap(ctx context.Context) (float64, error) {
	const settled = 3 // a collection frees what the finalizers of the one before let go
	for range settled {
		if err := get(ctx, r.ops+"/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	return process.Metric(ctx, r.ops+"/metrics", "go_memstats_heap_alloc_bytes")
}

// get wants the answer 200.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return err
}
