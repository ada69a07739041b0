//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// process is one that was started earlier. A number alone may belong to somebody else by now.
type process struct {
	PID int `json:"pid"`
	// Began is when, in ticks since the machine started.
	Began string `json:"began"`
	// Directory is where its configurations and logs are.
	Directory string `json:"directory"`
}

// recordAt is the same for every clone of the repository: there is one set of addresses, hence one cluster, on a
// machine. It is gone when the machine restarts, as the process is.
const recordAt = "/run/merchant-operator-cluster.json"

func (n *native) record(pid int) error {
	began, err := beginning(pid)
	if err != nil {
		return err
	}
	content, err := json.Marshal(process{PID: pid, Began: began, Directory: n.directory})
	if err != nil {
		return err
	}
	return os.WriteFile(recordAt, content, 0o600)
}

func recorded() (process, error) {
	content, err := os.ReadFile(recordAt)
	if err != nil {
		return process{}, err
	}
	var p process
	err = json.Unmarshal(content, &p)
	return p, err
}

func (p process) runs() bool {
	began, err := beginning(p.PID)
	return err == nil && began == p.Began
}

// beginning is field 22 of /proc/PID/stat, counted behind the name, which may hold anything.
func beginning(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("read when process %d began: %q", pid, stat)
	}
	if fields[0] == "Z" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// down ends the node, and with it all that is in its namespaces, and removes what they do not hold.
func (n *native) down(ctx context.Context) error {
	node, err := recorded()
	if err == nil && node.runs() {
		say("stopping the node and all that runs in it")
		if err := syscall.Kill(node.PID, syscall.SIGKILL); err != nil {
			return fmt.Errorf("stop the node: %w", err)
		}
		if err := until(ctx, "the node has ended", func() error {
			if node.runs() {
				return errors.New("it runs still")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read which process the node is: %w", err)
	}
	// The kernel takes its time to remove the pair with the namespace.
	if err := until(ctx, "the network device is gone", deviceIsGone); err != nil {
		return err
	}
	if err := until(ctx, "the cgroups are gone", removeCgroups); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(n.directory), os.RemoveAll(node.Directory), os.RemoveAll(recordAt))
}

// deviceIsGone removes the veth pair unless the kernel has.
func deviceIsGone() error {
	if _, err := os.Stat("/sys/class/net/" + hostDevice); err != nil {
		return nil //nolint:nilerr // its absence is what is wanted
	}
	return errors.Join(errors.New("it is there still"), ip("link", "delete", hostDevice))
}

// until tries again and again until check has no complaint, or ctx is done.
func until(ctx context.Context, what string, check func() error) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		case <-ticker.C:
		}
	}
}
