//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func (n *native) waitForAPI(ctx context.Context) error {
	return until(ctx, "the Kubernetes API is ready", func() error { return n.kubectl(ctx, "get", "--raw=/readyz") })
}

func (n *native) applyAddons(ctx context.Context) error {
	// The namespace is made by the server itself, a moment after it is ready.
	return until(ctx, "the API takes the addons", func() error {
		return n.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", n.in("policies.yaml"), "-f", n.in("dns.yaml"))
	})
}

func (n *native) waitForNode(ctx context.Context) error {
	if err := until(ctx, "the node is ready", func() error {
		return n.kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=10s", "node/"+nodeName)
	}); err != nil {
		return err
	}
	return until(ctx, "DNS answers", func() error {
		return n.kubectl(ctx, "-n", "kube-system", "rollout", "status", "--timeout=30s", "deployment/coredns")
	})
}

// kubectl runs it as the administrator of the cluster.
func (n *native) kubectl(ctx context.Context, args ...string) error {
	program := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		append([]string{"--kubeconfig", n.in("kubeconfig"), "--request-timeout=30s"}, args...)...)
	if said, err := program.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(said)))
	}
	return nil
}
