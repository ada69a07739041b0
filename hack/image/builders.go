package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// dockerAnswers tells whether there is a docker daemon, not just its client.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run() == nil
}

// buildWithDocker builds the Dockerfile for docker's own platform, loads the image, and saves it. What is released
// for several platforms is pushed by CI: no docker can load more than one under a name.
func buildWithDocker(ctx context.Context, o options) error {
	return errors.Join(
		command(ctx, "docker", "buildx", "build", "--load", "--provenance=false", "--build-arg", "VERSION="+o.version, "--tag", o.name, "."),
		command(ctx, "docker", "save", "--output", o.output, o.name),
	)
}

// buildWithBuildah builds the Dockerfile for all platforms. It has to pull the Go image.
func buildWithBuildah(ctx context.Context, o options) error {
	args := []string{"build", "--format", "oci", "--build-arg", "VERSION=" + o.version, "--manifest", o.name}
	for _, platform := range o.platforms {
		args = append(args, "--platform", platform.String())
	}
	return errors.Join(
		command(ctx, "buildah", append(args, ".")...),
		command(ctx, "buildah", "manifest", "push", "--all", o.name, "oci-archive:"+o.output+":"+o.name),
	)
}

func command(ctx context.Context, name string, args ...string) error {
	program := exec.CommandContext(ctx, name, args...)
	program.Stdout, program.Stderr = os.Stderr, os.Stderr
	if err := program.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return nil
}

// create makes a file and the directories above it.
func create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make a directory for %s: %w", path, err)
	}
	return os.Create(path)
}
