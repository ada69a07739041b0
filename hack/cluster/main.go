//go:build linux

// Command cluster makes a real Kubernetes cluster of one node on this machine for end-to-end tests, and removes it
// without a trace.
//
// Where docker answers the cluster is kind's. Where it does not, the node is native: etcd, kube-apiserver, controller
// manager, scheduler, kubelet and kube-proxy, all built from their Go modules, with Debian's containerd and CNI
// plugins. They run in namespaces of their own (processes, mounts, network) and keep their state in memory, so that
// the end of one process is the end of all of it: containers, mounts, devices and files. Images come from archives;
// nothing is pulled.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `Makes a Kubernetes cluster of one node on this machine: make cluster, or from the root of the repository

  bin/cluster up             start it, unless it runs; write .cluster/kubeconfig
  bin/cluster load ARCHIVE   load the images of an archive into it
  bin/cluster down           remove all of it

It needs root, and what hack/install.sh node installs. CLUSTER_COMPONENTS and KUBEBUILDER_ASSETS name the
directories of its programs (make sets them). What its programs say is in .cluster/logs.
`

// patience is how long the cluster may take to come up on a busy machine.
const patience = 10 * time.Minute

func main() {
	if len(os.Args) == 2 && os.Args[1] == nodeCommand {
		exit(runNode())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err == nil {
		return
	}
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(1)
}

// provider makes clusters.
type provider interface {
	up(ctx context.Context) error
	load(ctx context.Context, archive string) error
	down(ctx context.Context) error
}

func run(ctx context.Context, args []string) error {
	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	directory := filepath.Join(root, ".cluster")
	var cluster provider = &native{directory: directory}
	if dockerAnswers(ctx) {
		cluster = &kind{directory: directory, components: filepath.Join(root, "hack", "cluster", "components")}
	}
	switch {
	case len(args) == 1 && args[0] == "up":
		return cluster.up(ctx)
	case len(args) == 2 && args[0] == "load":
		return cluster.load(ctx, args[1])
	case len(args) == 1 && args[0] == "down":
		return cluster.down(ctx)
	default:
		return flag.ErrHelp
	}
}

// say tells what is being done.
func say(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }
