package freeport

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestChoose_NeverTwice(t *testing.T) {
	given := map[int]bool{}
	for range 300 {
		port, err := Choose()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || port < lowest || port >= lowest+count {
			t.Fatalf("port %d, after %d others", port, len(given))
		}
		given[port] = true
	}
}

// TestReserve_OtherProcess: packages are tested at the same time, and a port is often chosen long before its server listens.
func TestReserve_OtherProcess(t *testing.T) {
	if path := os.Getenv("FREEPORT_RESERVE"); path != "" {
		if file, err := reserve(path); err == nil {
			t.Errorf("reserved %s once more", file.Name())
		}
		return
	}
	port, err := Choose()
	if err != nil {
		t.Fatal(err)
	}
	path := reserved.files[port].Name()
	if !strings.HasSuffix(path, strconv.Itoa(port)) {
		t.Fatalf("port %d is reserved by %s", port, path)
	}
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.count=1")
	other.Env = append(os.Environ(), "FREEPORT_RESERVE="+path)
	if output, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}
