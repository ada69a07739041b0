// Command sizing measures what docs/sizing.md counts with: what sessions, events and keys cost in Redis, and what
// Merchants and ApiKeys cost in each role. It starts a real redis-server, a real kube-apiserver and the real programs:
//
//	make build && KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh) go run ./hack/sizing
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	sessions := flag.Int("sessions", 100_000, "how many of each to write to Redis; 0: leave Redis out")
	merchants := flag.Int("merchants", 5_000, "how many Merchants, each with an ApiKey and a webhook; 0: leave the roles out")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *sessions, *merchants)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sessions, merchants int) error {
	if sessions > 0 {
		if err := measureRedis(ctx, sessions); err != nil {
			return fmt.Errorf("measure Redis: %w", err)
		}
	}
	if merchants > 0 {
		if err := measureRoles(ctx, merchants); err != nil {
			return fmt.Errorf("measure the roles: %w", err)
		}
	}
	return nil
}
