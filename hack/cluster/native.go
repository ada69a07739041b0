//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// native is a node of programs on this machine.
type native struct{ directory string }

func (n *native) in(name string) string { return filepath.Join(n.directory, name) }

// up starts the node unless it runs, and goes through the rest either way: a cluster that came up by half is finished.
func (n *native) up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a native node needs root")
	}
	if err := n.checkPrograms(); err != nil {
		return err
	}
	if node, err := recorded(); err == nil && node.runs() {
		if node.Directory != n.directory {
			return fmt.Errorf("the cluster of %s runs on this machine, and there can be one: `bin/cluster down` removes it", node.Directory)
		}
		say("the cluster runs already")
		return n.finish(ctx)
	}
	if err := n.down(ctx); err != nil {
		return fmt.Errorf("remove what is left of an earlier cluster: %w", err)
	}
	say("starting a node: etcd, kube-apiserver, controllers, scheduler, kubelet, kube-proxy, containerd")
	if err := n.start(); err != nil {
		return errors.Join(err, n.down(context.WithoutCancel(ctx)))
	}
	return n.finish(ctx)
}

func (n *native) finish(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"waiting for the Kubernetes API", n.waitForAPI},
		{"loading the images of pause and DNS", n.loadOwnImages},
		{"applying DNS, and the rights of what enforces NetworkPolicies", n.applyAddons},
		{"waiting for the node and DNS", n.waitForNode},
	}
	for _, step := range steps {
		say("%s", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w (see %s)", step.what, err, n.in("logs"))
		}
	}
	say("ready: export KUBECONFIG=%s", n.in("kubeconfig"))
	return nil
}

// checkPrograms says what is missing, and how to get it.
func (n *native) checkPrograms() error {
	for _, name := range []string{"CLUSTER_COMPONENTS", "KUBEBUILDER_ASSETS"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start this with `make cluster`", name)
		}
	}
	for _, name := range []string{"containerd", "runc", "ctr", "iptables", "ipset", "ip", "nsenter", "/usr/lib/cni/ptp"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is missing: run hack/install.sh node", name)
		}
	}
	return nil
}

// start starts the node process in namespaces of its own, and gives it a network device.
func (n *native) start() error {
	if err := errors.Join(writeConfigs(n.directory), makeCgroups()); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	log, err := os.Create(n.in("logs/node.log"))
	if err != nil {
		return fmt.Errorf("make a log file: %w", err)
	}
	defer func() { _ = log.Close() }()      // the child has its own
	node := exec.Command(self, nodeCommand) //nolint:noctx // it outlives this process
	node.Stdout, node.Stderr, node.Dir = log, log, "/"
	node.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	input, err := node.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	if err := node.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	if err := n.record(node.Process.Pid); err != nil {
		return errors.Join(err, node.Process.Kill())
	}
	if err := connect(node.Process.Pid); err != nil {
		return err
	}
	return errors.Join(
		json.NewEncoder(input).Encode(nodeConfig{
			Directory: n.directory,
			Programs:  []string{os.Getenv("CLUSTER_COMPONENTS"), os.Getenv("KUBEBUILDER_ASSETS")},
		}),
		input.Close(),
		node.Process.Release(),
	)
}

// connect makes the veth pair between this machine and the node, and routes pods and Services through it. It goes
// when the node's namespace goes.
func connect(pid int) error {
	for _, args := range [][]string{
		{"link", "add", hostDevice, "type", "veth", "peer", "name", nodeDevice, "netns", fmt.Sprint(pid)},
		{"address", "add", hostAddress + linkBits, "dev", hostDevice},
		{"link", "set", hostDevice, "up"},
		{"route", "add", podRange, "via", nodeAddress},
		{"route", "add", serviceRange, "via", nodeAddress},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

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

// load hands an archive to containerd inside the node.
func (*native) load(ctx context.Context, archive string) error {
	node, err := recorded()
	if err != nil || !node.runs() {
		return errors.New("the cluster does not run: start it with `make cluster`")
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	program := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(node.PID), "--mount", "--pid",
		"ctr", "--address", containerdAt, "--namespace", "k8s.io", "images", "import", "-")
	program.Stdin = file
	if said, err := program.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w: %s", archive, err, said)
	}
	return nil
}
