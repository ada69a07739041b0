package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine says what was measured on.
type machine struct {
	Time       time.Time `json:"time"`
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Redis      string    `json:"redis"`
	Load       string    `json:"loadAverage"` // at the end, the benchmark's own load included
}

func describeMachine() machine {
	return machine{
		Time: time.Now().UTC(), Processors: runtime.NumCPU(), Go: runtime.Version(),
		Processor: processorName(),
		Kernel:    firstLine("/proc/sys/kernel/osrelease"),
		Load:      firstLine("/proc/loadavg"),
		Redis:     redisVersion(),
	}
}

func (m machine) String() string {
	return fmt.Sprintf("%d x %s, Linux %s, %s, %s, load %s", m.Processors, m.Processor, m.Kernel, m.Go, m.Redis, m.Load)
}

func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func redisVersion() string {
	text, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "Redis"
	}
	words := strings.Fields(string(text))
	if len(words) > 2 {
		return "Redis " + strings.TrimPrefix(words[2], "v=")
	}
	return "Redis"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
