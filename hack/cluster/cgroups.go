//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// hierarchies are the roots of cgroups: one for each controller in version 1, one for all in version 2.
func hierarchies() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	return filepath.Glob(root + "/*")
}

// makeCgroups makes the group in which the kubelet keeps its pods, away from everybody else's.
func makeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, cgroup)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		if err := preferOnCPU(group); err != nil {
			return err
		}
		// In version 1 a new cpuset is empty, and nothing can run in it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			content, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				continue // not this controller
			}
			if err := os.WriteFile(filepath.Join(group, file), content, 0o600); err != nil {
				return fmt.Errorf("fill a cpuset: %w", err)
			}
		}
	}
	return nil
}

// preferOnCPU gives the cluster more weight than whatever else runs here: as one group among many processes it would
// come last on a busy machine, and its tests would find what is not there.
func preferOnCPU(group string) error {
	for file, most := range map[string]string{"cpu.shares": "262144", "cpu.weight": "10000"} {
		path := filepath.Join(group, file)
		if _, err := os.Stat(path); err != nil {
			continue // not this controller, or not this version
		}
		if err := os.WriteFile(path, []byte(most), 0o600); err != nil {
			return fmt.Errorf("prefer the cluster on the CPU: %w", err)
		}
	}
	return nil
}

// removeCgroups removes the group and those inside, which the kernel allows when the last process has left.
func removeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var failures []error
	for _, root := range roots {
		failures = append(failures, removeTree(filepath.Join(root, cgroup)))
	}
	return errors.Join(failures...)
}

// removeTree removes directories from the innermost: the files in a cgroup are not to be removed.
func removeTree(directory string) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
