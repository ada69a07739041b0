//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// nodeCommand is the second process, which is not for people: the first one of the cluster's own namespaces.
const nodeCommand = "node"

// nodeConfig is what the node reads from its standard input once its network device is there.
type nodeConfig struct {
	// Directory has the configurations; the logs go there too.
	Directory string `json:"directory"`
	// Programs are the directories of the binaries that are the project's own builds.
	Programs []string `json:"programs"`
}

// runNode sets the namespaces up, starts the cluster's programs, and starts again what ends. It never returns while
// all is well, and is ended by SIGKILL: the kernel then ends whatever else is in its namespaces.
func runNode() error {
	var config nodeConfig
	if err := json.NewDecoder(os.Stdin).Decode(&config); err != nil {
		return fmt.Errorf("read the configuration: %w", err) // as when `up` was interrupted
	}
	// Whoever started this may go away, and its terminal with it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	if err := errors.Join(isolateMounts(), joinNetwork()); err != nil {
		return err
	}
	path := append(append([]string{}, config.Programs...), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	if err := os.Setenv("PATH", strings.Join(path, ":")); err != nil {
		return err
	}
	if err := os.MkdirAll("/run/cni", 0o755); err != nil {
		return err
	}
	network, err := os.ReadFile(filepath.Join(config.Directory, "cni.conflist"))
	if err != nil {
		return err
	}
	if err := os.WriteFile("/run/cni/pods.conflist", network, 0o600); err != nil {
		return err
	}
	return supervise(filepath.Join(config.Directory, "logs"), programs(config.Directory))
}

// isolateMounts hides what the machine keeps in /run, /var/lib and /var/log behind empty directories in memory, where
// the cluster keeps its own. Nothing of it is seen outside, nor outlives the namespace.
func isolateMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	for _, directory := range []string{"/run", "/var/lib", "/var/log"} {
		if err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount memory at %s: %w", directory, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, directory := range []string{"/run/lock", "/run/netns", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	if err := hideTunables(); err != nil {
		return err
	}
	// What containers expect of their volumes: mounts inside are seen by later ones.
	if err := syscall.Mount("", "/var/lib", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts of volumes: %w", err)
	}
	return syscall.Sethostname([]byte(nodeName))
}

// hideTunables shows the kubelet the kernel settings it wants, as files of its own. It would set them otherwise, for
// the whole machine.
func hideTunables() error {
	if err := os.MkdirAll("/run/tunables", 0o755); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	} {
		file := "/run/tunables/" + filepath.Base(name)
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	return nil
}

// joinNetwork sets up this end of the veth pair. The machine's end is the way to everywhere else.
func joinNetwork() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", nodeAddress + linkBits, "dev", nodeDevice},
		{"link", "set", nodeDevice, "up"},
		{"route", "add", "default", "via", hostAddress},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// ip runs the program of that name.
func ip(args ...string) error {
	if said, err := exec.Command("ip", args...).CombinedOutput(); err != nil { //nolint:noctx // it only asks the kernel
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(said)))
	}
	return nil
}

// program is one that runs as long as the cluster does.
type program struct {
	name string
	args []string
}

// supervise starts all programs and, a second after one ended, that one again. It is also what an init has to be: it
// collects every process whose parent has gone, the shims of containers above all.
func supervise(logs string, all []program) error {
	running := map[int]program{}
	again := make(chan program, len(all))
	for _, one := range all {
		again <- one
	}
	ended := make(chan int)
	go collect(ended)
	for {
		select {
		case one := <-again:
			pid, err := start(logs, one)
			if err != nil {
				return err
			}
			running[pid] = one
		case pid := <-ended:
			one, ours := running[pid]
			if !ours {
				continue
			}
			delete(running, pid)
			fmt.Fprintf(os.Stderr, "%s %s ended; it is started again\n", time.Now().UTC().Format(time.RFC3339), one.name)
			time.AfterFunc(time.Second, func() { again <- one })
		}
	}
}

// collect says which children ended. It is the only one that waits for any.
func collect(ended chan<- int) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case err == nil:
			ended <- pid
		case errors.Is(err, syscall.ECHILD):
			<-ticker.C // nothing runs yet
		}
	}
}

func start(logs string, one program) (pid int, err error) {
	path, err := exec.LookPath(one.name)
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(filepath.Join(logs, one.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make a log file: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = nothing.Close() }()
	process, err := os.StartProcess(path, append([]string{one.name}, one.args...), &os.ProcAttr{
		Files: []*os.File{nothing, log, log},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", one.name, err)
	}
	pid = process.Pid
	return pid, process.Release()
}
