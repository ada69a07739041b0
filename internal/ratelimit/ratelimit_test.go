package ratelimit_test

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

func TestPolicy_Cost(t *testing.T) {
	for _, test := range []struct {
		policy           ratelimit.Policy
		interval, window time.Duration
	}{
		{ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}, 20 * time.Millisecond, 2 * time.Second},
		{ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}, time.Second, time.Second},
		{ratelimit.Policy{RequestsPerSecond: 3, Burst: 3}, 333_334 * time.Microsecond, 1_000_002 * time.Microsecond},
		{ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000}, 100 * time.Microsecond, 10 * time.Second},
		{ratelimit.Policy{RequestsPerSecond: 1<<31 - 1, Burst: 1<<31 - 1}, time.Microsecond, (1<<31 - 1) * time.Microsecond},
		{ratelimit.Policy{}, time.Second, time.Second},
		{ratelimit.Policy{RequestsPerSecond: -5, Burst: -5}, time.Second, time.Second},
	} {
		if interval, window := test.policy.Interval(), test.policy.Window(); interval != test.interval || window != test.window {
			t.Errorf("%+v: interval %s and window %s, want %s and %s", test.policy, interval, window, test.interval, test.window)
		}
	}
}

func TestPolicy_Interval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1<<31-1).Draw(t, "rate")
		interval := ratelimit.Policy{RequestsPerSecond: rate, Burst: 1}.Interval()
		if micros := interval.Microseconds(); micros*rate < 1_000_000 || (micros-1)*rate >= 1_000_000 {
			t.Fatalf("%d requests per second: %s apart", rate, interval)
		}
	})
}

func TestQuota_Admitted(t *testing.T) {
	policy := ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}
	for backlog, want := range map[time.Duration]ratelimit.Quota{
		20 * time.Millisecond:                            {Policy: policy, Remaining: 99, Reset: 20 * time.Millisecond},
		20*time.Millisecond + 1*time.Microsecond:         {Policy: policy, Remaining: 98, Reset: 20*time.Millisecond + time.Microsecond},
		1160 * time.Millisecond:                          {Policy: policy, Remaining: 42, Reset: 1160 * time.Millisecond},
		2 * time.Second:                                  {Policy: policy, Remaining: 0, Reset: 2 * time.Second},
		1_980_001 * time.Microsecond:                     {Policy: policy, Remaining: 0, Reset: 1_980_001 * time.Microsecond},
		3 * time.Second /* of a larger, former limit */ : {Policy: policy, Remaining: 0, Reset: 3 * time.Second},
	} {
		if got := policy.Admitted(backlog); got != want {
			t.Errorf("backlog %s: %+v, want %+v", backlog, got, want)
		}
	}
}

// The time must be exact: any earlier the request would be refused again.
func TestQuota_RetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := ratelimit.Policy{
			RequestsPerSecond: rapid.Int64Range(1, 10_000).Draw(t, "rate"), Burst: rapid.Int64Range(1, 1000).Draw(t, "burst"),
		}
		passes := func(backlog time.Duration) bool { return backlog+policy.Interval() <= policy.Window() }
		lowest := (policy.Window() - policy.Interval()).Microseconds() + 1
		backlog := time.Duration(rapid.Int64Range(lowest, policy.Window().Microseconds()).Draw(t, "backlog")) * time.Microsecond
		quota := policy.Refused(backlog)
		if quota.Remaining != 0 || quota.Reset != backlog || quota.Policy != policy {
			t.Fatalf("%+v", quota)
		}
		if !passes(backlog-quota.RetryAfter) || passes(backlog-quota.RetryAfter+time.Microsecond) {
			t.Fatalf("backlog %s: retry after %s", backlog, quota.RetryAfter)
		}
	})
}

func TestHeaders(t *testing.T) {
	for _, test := range []struct {
		quota                     ratelimit.Quota
		policy, limit, retryAfter string
	}{
		{
			ratelimit.Quota{Policy: ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}, Remaining: 42, Reset: 160 * time.Millisecond},
			`"merchant";q=100;w=2`, `"merchant";r=42;t=1`, "1",
		}, {
			ratelimit.Quota{Policy: ratelimit.Policy{RequestsPerSecond: 3, Burst: 3}, Reset: time.Second, RetryAfter: time.Second},
			`"merchant";q=3;w=2`, `"merchant";r=0;t=1`, "1",
		}, {
			ratelimit.Quota{Policy: ratelimit.Policy{RequestsPerSecond: 1, Burst: 60}, Reset: time.Minute + 1, RetryAfter: time.Second + 1},
			`"merchant";q=60;w=60`, `"merchant";r=0;t=61`, "2",
		}, {
			ratelimit.Quota{}, `"merchant";q=1;w=1`, `"merchant";r=0;t=0`, "1",
		},
	} {
		if got := test.quota.PolicyHeader("merchant"); got != test.policy {
			t.Errorf("RateLimit-Policy: %s, want %s", got, test.policy)
		}
		if got := test.quota.Header("merchant"); got != test.limit {
			t.Errorf("RateLimit: %s, want %s", got, test.limit)
		}
		if got := test.quota.RetryAfterHeader(); got != test.retryAfter {
			t.Errorf("Retry-After: %s, want %s", got, test.retryAfter)
		}
	}
}

func TestHeaders_RetryAfterRoundsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "wait"))
		seconds, err := strconv.Atoi(ratelimit.Quota{RetryAfter: wait}.RetryAfterHeader())
		if err != nil || seconds < 1 {
			t.Fatalf("%d, %v", seconds, err)
		}
		if early := time.Duration(seconds) * time.Second; early < wait || (seconds > 1 && early-wait >= time.Second) {
			t.Fatalf("%s is seconds as %d s", wait, seconds)
		}
	})
}

func BenchmarkHeaders(b *testing.B) {
	quota := ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}.Admitted(time.Second)
	b.Run("header=RateLimit-Policy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = quota.PolicyHeader("merchant")
		}
	})
	b.Run("header=RateLimit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = quota.Header("merchant")
		}
	})
}

func BenchmarkAdmitted(b *testing.B) {
	policy := ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}
	b.ReportAllocs()
	for b.Loop() {
		_ = policy.Admitted(time.Second)
	}
}
