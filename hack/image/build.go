package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// What the image holds, as in the Dockerfile.
const (
	binaryPath = "/merchant-operator"
	rootsPath  = "/etc/ssl/certs/ca-certificates.crt"
	// A number, so that Kubernetes knows that it is not root.
	user = "65532:65532"
)

// build makes the image that the Dockerfile describes.
func build(ctx context.Context, o options) error {
	images := make([]v1.Image, 0, len(o.platforms))
	for _, platform := range o.platforms {
		fmt.Fprintf(os.Stderr, "==> compiling merchant-operator %s for %s\n", o.version, platform)
		binary, err := compile(ctx, platform, o.version)
		if err != nil {
			return err
		}
		image, err := newImage(platform, commitTime(ctx), imageConfig(o.version), imageFiles(binary))
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	return writeArchive(o.output, o.name, images...)
}

func imageConfig(version string) v1.Config {
	return v1.Config{
		User: user, Entrypoint: []string{binaryPath}, WorkingDir: "/",
		Labels: map[string]string{"org.opencontainers.image.version": version},
	}
}

func imageFiles(binary []byte) []file {
	return []file{{rootsPath, 0o644, roots()}, {binaryPath, 0o755, binary}}
}

// compile builds as the Dockerfile does.
func compile(ctx context.Context, platform v1.Platform, version string) ([]byte, error) {
	directory, err := os.MkdirTemp("", "merchant-operator-image-")
	if err != nil {
		return nil, err
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

// roots are the certificate authorities that Mozilla trusts, from Go's own module: this machine may trust others.
func roots() []byte {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		certificates.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	return certificates.Bytes()
}

// commitTime is the last commit's, so that the same commit gives the same image; the epoch outside a repository.
func commitTime(ctx context.Context) time.Time {
	text, _ := exec.CommandContext(ctx, "git", "log", "-1", "--format=%cI").Output()
	when, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil {
		return time.Unix(0, 0)
	}
	return when
}

// pack makes an image of programs that are installed on this machine, with their libraries, for a cluster that pulls no images.
// The first program is the entrypoint.
func pack(ctx context.Context, user, name, archive string, programs []string) error {
	config := v1.Config{User: user, Env: []string{"PATH=/usr/bin"}, WorkingDir: "/"}
	var files []file
	for i, program := range programs {
		from, err := exec.LookPath(program)
		if err != nil {
			return err
		}
		to := "/usr/bin/" + filepath.Base(program)
		if i == 0 {
			config.Entrypoint = []string{to}
		}
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, file{to, 0o755, content})
		for _, library := range libraries(ctx, from) {
			content, err := os.ReadFile(library) // follows links
			if err != nil {
				return err
			}
			files = append(files, file{library, 0o755, content})
		}
	}
	image, err := newImage(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, time.Unix(0, 0), config, files)
	if err != nil {
		return err
	}
	fmt.Printf("==> %s holds %s\n", archive, name)
	return writeArchive(archive, name, image)
}

// libraries are the absolute paths in the output of ldd, such as
// "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)". For a static program ldd fails.
func libraries(ctx context.Context, program string) []string {
	output, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(string(output)), func(word string) bool { return !strings.HasPrefix(word, "/") })
}
