package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// usedMemory asks a Redis how many bytes its data and connections take.
func usedMemory(ctx context.Context, address string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("INFO memory\r\n")); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if value, found := strings.CutPrefix(strings.TrimSpace(lines.Text()), "used_memory:"); found {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("redis at %s does not tell its memory", address)
}

// storageSize is what etcd holds, in bytes, as the API server tells: with the versions that are not compacted away yet.
func storageSize(ctx context.Context, config *rest.Config) (int, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	text, err := kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask the API server for its metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_storage_size_bytes") {
			size, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' '):]), 64)
			return int(size), err
		}
	}
	return 0, errors.New("the API server does not tell the size of its storage")
}

// resident is the memory of a process that is in RAM, in bytes, which is what a container's limit counts: its own now,
// and the most it ever was.
func resident(pid int) (now, most int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmRSS":
			now = kilobytes << 10
		case "VmHWM":
			most = kilobytes << 10
		}
	}
	return now, most, nil
}
