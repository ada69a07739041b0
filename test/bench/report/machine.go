package report

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Machine says what was measured on.
type Machine struct {
	Time       time.Time `json:"time"`
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Redis      string    `json:"redis"`
	Load       string    `json:"loadAverage"` // at the end, the benchmark's own load included
}

// DescribeMachine returns what this one is, at this moment.
func DescribeMachine() Machine {
	return Machine{
		Time: time.Now().UTC(), Processors: runtime.NumCPU(), Go: runtime.Version(),
		Processor: processorName(),
		Kernel:    firstLine("/proc/sys/kernel/osrelease"),
		Load:      firstLine("/proc/loadavg"),
		Redis:     redisVersion(),
	}
}

// String is one line for people.
func (m Machine) String() string {
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
	binary, err := redistest.Binary()
	if err != nil {
		return "Redis"
	}
	text, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return "Redis"
	}
	words := strings.Fields(string(text)) // such as: Valkey server v=8.0.1
	if len(words) > 2 {
		return words[0] + " " + strings.TrimPrefix(words[2], "v=")
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
