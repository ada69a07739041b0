package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is the memory of a process that is in RAM, in bytes, which is what a container's limit counts.
type Memory struct {
	Now  int `json:"bytes"`
	Most int `json:"bytesAtMost"` // since it was started
}

// ReadMemory asks the kernel.
func ReadMemory(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var read Memory
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmRSS":
			read.Now = kilobytes << 10
		case "VmHWM":
			read.Most = kilobytes << 10
		}
	}
	return read, nil
}
