//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const kindName = "merchant-operator"

// kind is a cluster in docker. Kind itself comes from the module of the components.
type kind struct{ directory, components string }

// dockerAnswers tells whether there is a docker daemon, not just its client.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run() == nil
}

func (k *kind) up(ctx context.Context) error {
	if err := os.MkdirAll(k.directory, 0o700); err != nil {
		return fmt.Errorf("make a directory for the cluster: %w", err)
	}
	kubeconfig := filepath.Join(k.directory, "kubeconfig")
	if exec.CommandContext(ctx, "docker", "inspect", kindName+"-control-plane").Run() == nil {
		say("kind cluster %s runs already", kindName)
		return k.run(ctx, "export", "kubeconfig", "--name", kindName, "--kubeconfig", kubeconfig)
	}
	return k.run(ctx, "create", "cluster", "--name", kindName, "--kubeconfig", kubeconfig, "--wait", "5m")
}

func (k *kind) load(ctx context.Context, archive string) error {
	absolute, err := filepath.Abs(archive)
	if err != nil {
		return err
	}
	return k.run(ctx, "load", "image-archive", "--name", kindName, absolute)
}

func (k *kind) down(ctx context.Context) error {
	if err := k.run(ctx, "delete", "cluster", "--name", kindName); err != nil {
		return err
	}
	return os.RemoveAll(k.directory)
}

func (k *kind) run(ctx context.Context, args ...string) error {
	program := exec.CommandContext(ctx, "go", append([]string{"-C", k.components, "tool", "kind"}, args...)...)
	program.Env = append(os.Environ(), "GOWORK=off")
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	if err := program.Run(); err != nil {
		return fmt.Errorf("kind %s: %w", args[0], err)
	}
	return nil
}
