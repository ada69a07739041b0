package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// What the image holds, as in the Dockerfile.
const (
	binaryPath = "/merchant-operator"
	rootsPath  = "/etc/ssl/certs/ca-certificates.crt"
	// By number, so that Kubernetes can tell that it is not root.
	user = "65532:65532"
)

// assemble makes the image of the Dockerfile without running it.
func assemble(ctx context.Context, o options) error {
	images := make([]oci.Image, 0, len(o.platforms))
	created := commitTime(ctx)
	for _, platform := range o.platforms {
		fmt.Fprintf(os.Stderr, "==> compiling merchant-operator %s for %s\n", o.version, platform)
		binary, err := compile(ctx, platform, o.version)
		if err != nil {
			return err
		}
		images = append(images, productImage(platform, created, o.version, binary))
	}
	file, err := create(o.output)
	if err != nil {
		return err
	}
	return errors.Join(oci.Write(file, fullName(o.name), images), file.Close())
}

func productImage(platform oci.Platform, created time.Time, version string, binary []byte) oci.Image {
	return oci.Image{
		Platform: platform,
		Created:  created,
		Config: oci.Config{
			User:       user,
			Entrypoint: []string{binaryPath},
			WorkingDir: "/",
			Labels:     map[string]string{"org.opencontainers.image.version": version},
		},
		Files: []oci.File{
			{Path: rootsPath, Mode: 0o644, Content: roots()},
			{Path: binaryPath, Mode: 0o755, Content: binary},
		},
	}
}

// compile builds as the Dockerfile does.
func compile(ctx context.Context, platform oci.Platform, version string) ([]byte, error) {
	directory, err := os.MkdirTemp("", "merchant-operator-image-")
	if err != nil {
		return nil, fmt.Errorf("make a directory to compile into: %w", err)
	}
	defer func() { _ = os.RemoveAll(directory) }()
	output := filepath.Join(directory, "merchant-operator")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", output, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("compile for %s: %w", platform, err)
	}
	return os.ReadFile(output)
}

// roots are the certificate authorities that Mozilla trusts, from Go's own module of them. This machine's are not
// asked: it may trust some that are nobody else's business.
func roots() []byte {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		certificates.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	return certificates.Bytes()
}

// commitTime is the last commit's, so that the same commit gives the same image; the epoch outside a repository.
func commitTime(ctx context.Context) time.Time {
	seconds, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%cI").Output()
	if err != nil {
		return time.Unix(0, 0)
	}
	when, err := time.Parse(time.RFC3339, strings.TrimSpace(string(seconds)))
	if err != nil {
		return time.Unix(0, 0)
	}
	return when
}

// fullName says what docker leaves out: containerd and the kubelet look images up by their full names.
func fullName(name string) string {
	host, _, hasPath := strings.Cut(name, "/")
	switch {
	case !hasPath:
		return "docker.io/library/" + name
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return name
	default:
		return "docker.io/" + name
	}
}
