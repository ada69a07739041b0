// Package dispatcher expires sessions, delivers webhook events and sends receipts. Any number of dispatchers share the work through Redis,
// without a leader; the events of one that crashes are due again for the others. See docs/design/webhooks.md.
package dispatcher

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/receipts"
	"github.com/merchant-operator/merchant-operator/dispatcher/status"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	receiptstore "github.com/merchant-operator/merchant-operator/internal/store/receipts"
)

// Run dispatches until ctx ends, then drains: it leases nothing more, finishes the attempts in progress and releases the
// other events. It returns nil after a clean drain, and an error if it could not start, if the listener failed, or if
// attempts had to be aborted.
func Run(ctx context.Context, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	client, err := delivery.New(delivery.Options{AllowHTTP: options.AllowHTTP, Rules: options.Egress})
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := role.Open(ctx, "dispatcher", options.Options, redis.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	sessions, err := store.New(r.Redis, store.Options{History: options.History})
	if err != nil {
		return err
	}
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	ctrllog.SetLogger(logr.FromSlogHandler(options.Log.Handler())) // for warnings of the API server
	writer, err := status.NewKubeWriter(r.Cluster, identity, options.CredentialsNamespace)
	if err != nil {
		return err
	}
	rotations, changes := newRotations(), status.NewChanges()
	index := endpoints.New(endpoints.Options{
		Log: options.Log, Registerer: r.Registry, Rotated: rotations.add, Changed: changes.Add,
		Refused: func(url string) bool { _, refused := client.Refusal(url); return refused }, Now: options.Now,
	})
	d := newDispatcher(options, r.Redis, sessions, client, index, r.Tracer, rotations, r.Registry, identity)
	reporter := status.New(status.Options{
		Outbox: d.outbox, Keys: keystate.New(r.Redis, options.LastUseStep), Redis: r.Redis, Blocked: blocked.New(r.Redis), Index: index, Writer: writer, Refusal: client.Refusal, Changes: changes, HealthChanged: d.worker.HealthChanged,
		PublishUsesInterval: options.PublishUsesInterval, LastUseStep: options.LastUseStep, Log: d.log, Registerer: r.Registry, Now: options.Now,
	})
	mails := func(context.Context) {}
	if options.MailServer.Enabled() {
		sender, err := receipts.New(receipts.Options{
			Server: options.MailServer, Store: receiptstore.New(r.Redis), Log: d.log, Registerer: r.Registry, ShutdownTimeout: options.ShutdownTimeout,
		})
		if err != nil {
			return err
		}
		mails = sender.Run
	}
	return r.Serve(ctx, role.Service{
		Age: index.Age, MaxAge: keystate.OverrideLifetime,
		Background: []func(context.Context){func(ctx context.Context) {
			index.Watch(ctx, r.Kube.CoreV1().RESTClient(), options.CredentialsNamespace)
		}},
		Sync: role.Closed(index.Synced()), // it could not decide about an event before
		Work: func(ctx context.Context) error {
			var beside sync.WaitGroup
			beside.Go(func() { reporter.Run(ctx) })
			beside.Go(func() { mails(ctx) })
			defer beside.Wait()
			return d.run(ctx)
		},
	})
}

// newIdentity names this process in its leases and events.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get the host name: %w", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
}
