//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// The node's own images, which run.sh packs of binaries that were built here.
const (
	pauseImage = "merchant-operator.local/pause:1"
	dnsImage   = "merchant-operator.local/coredns:1"
)

func (n *native) loadOwnImages(ctx context.Context) error {
	for _, archive := range []string{"bin/pause.tar", "bin/coredns.tar"} {
		// containerd may still be starting.
		if err := until(ctx, "containerd takes images", func() error { return n.load(ctx, archive) }); err != nil {
			return err
		}
	}
	return nil
}

func (n *native) load(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return n.importImages(ctx, file)
}

// importImages hands an archive to containerd inside the node.
func (*native) importImages(ctx context.Context, archive io.Reader) error {
	node, err := recorded()
	if err != nil || !node.runs() {
		return fmt.Errorf("the cluster does not run: start it with `make cluster`")
	}
	program := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(node.PID), "--mount", "--pid",
		"ctr", "--address", containerdAt, "--namespace", "k8s.io", "images", "import", "-")
	program.Stdin = archive
	if said, err := program.CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, said)
	}
	return nil
}
