//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// The node's own images, of binaries that were built here.
const (
	pauseImage = "merchant-operator.local/pause:1"
	dnsImage   = "merchant-operator.local/coredns:1"
)

func (n *native) loadOwnImages(ctx context.Context) error {
	for _, own := range []struct {
		name, binary, user string
	}{
		{pauseImage, "pause", "65535:65535"},
		{dnsImage, "coredns", "65532:65532"},
	} {
		binary, err := os.ReadFile(filepath.Join(os.Getenv("CLUSTER_COMPONENTS"), own.binary))
		if err != nil {
			return err
		}
		image := oci.Image{
			Platform: oci.Platform{OS: "linux", Architecture: runtime.GOARCH},
			Created:  time.Unix(0, 0),
			Config:   oci.Config{User: own.user, Entrypoint: []string{"/" + own.binary}, WorkingDir: "/"},
			Files:    []oci.File{{Path: "/" + own.binary, Mode: 0o755, Content: binary}},
		}
		var archive bytes.Buffer
		if err := oci.Write(&archive, own.name, []oci.Image{image}); err != nil {
			return err
		}
		content := archive.Bytes()
		// containerd may still be starting.
		if err := until(ctx, "containerd takes images", func() error { return n.importImages(ctx, bytes.NewReader(content)) }); err != nil {
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
	say("loading %s", archive)
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
