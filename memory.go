package main

import (
	"log/slog"
	"math"

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

// ballast is for roles that keep little and throw much away. The collector sets to work when there is as much garbage as of
// what is kept, which would be fifty times a second; what is kept and never touched counts for it, and takes no memory. So there may
// be so much garbage more, and no more than that under any load, as there would be with a higher GOGC. The caller
// keeps it alive for as long as the role runs.
func ballast() []byte { return make([]byte, 32<<20) }
