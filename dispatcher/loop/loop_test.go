package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// A signal runs a step long before its interval is over, and more work runs it again at once.
func TestRun_Signal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var steps atomic.Int32
	wake := loop.NewSignal()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loop.Run(ctx, loop.NewLog(slog.New(slog.DiscardHandler)), loop.Loop{
			Interval: 1000 * time.Hour, Wake: wake, Step: func(context.Context) (more bool, err error) { return steps.Add(1) < 3, nil },
		})
	}()
	wake.Set()
	await.Until(t, 30*time.Second, "the step ran three times", func() bool { return steps.Load() == 3 })
	cancel()
	<-ended
	if n := steps.Load(); n != 3 {
		t.Errorf("%d steps, want 3", n)
	}
}

// A signal that is set twice before its loop sees it is one.
func TestSignal_Set(t *testing.T) {
	signal := loop.NewSignal()
	signal.Set()
	signal.Set()
	if len(signal) != 1 {
		t.Errorf("it is set %d times", len(signal))
	}
}

// An outage is one line, not one for each try.
func TestLog_RedisFailed(t *testing.T) {
	buffer := new(logtest.Buffer)
	log := loop.NewLog(slog.New(slog.NewTextHandler(buffer, nil)))
	for range 3 {
		log.RedisFailed(errors.New("down"))
	}
	if n := strings.Count(buffer.String(), "could not process events"); n != 1 {
		t.Errorf("%d lines:\n%s", n, buffer)
	}
}
