package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is the time a process has had on all processors, as the scheduler counts it for each thread.
func CPU(pid int) (time.Duration, error) {
	threads := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(threads)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, entry := range entries {
		text, err := os.ReadFile(threads + "/" + entry.Name() + "/schedstat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		spent, err := strconv.ParseInt(nanoseconds, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(spent)
	}
	return total, nil
}

// Metric reads a metric without labels from a page of metrics.
func Metric(ctx context.Context, url, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(fmt.Errorf("%s does not tell %s", url, name), lines.Err())
}
