package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// fitMemory has the garbage collector work harder when the container's memory limit is near, rather than let the kernel
// kill the process. GOMEMLIMIT in the environment takes its place.
func fitMemory(log *slog.Logger) {
	const share = 0.9 // the rest is for what the collector does not count
	if limit, err := memlimit.Set(memlimit.WithRatio(share)); err == nil && limit < math.MaxInt64 {
		log.Info("memory is limited", "bytes", limit)
	}
}

// collectLess is for roles that keep little and throw much away: the default, to collect garbage whenever there is as much of it as
// of what is kept, has them do so fifty times a second. GOGC in the environment takes its place.
func collectLess() {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
