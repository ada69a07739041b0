package dispatcher

import (
	"testing"
	"time"
)

func TestDefaultSchedule(t *testing.T) {
	want := []string{"0s", "5s", "30s", "2m0s", "10m0s", "30m0s", "2h0m0s", "6h0m0s", "12h0m0s", "24h0m0s", "24h0m0s"}
	schedule := DefaultSchedule()
	if len(schedule) != len(want) {
		t.Fatalf("%d attempts, want %d", len(schedule), len(want))
	}
	for i, step := range schedule {
		if step.String() != want[i] {
			t.Errorf("step %d is %s, want %s", i, step, want[i])
		}
	}
}

func TestSchedule_Next(t *testing.T) {
	schedule := Schedule{0, 10 * time.Second, time.Minute}
	for desc, test := range map[string]struct {
		failed     int
		retryAfter time.Duration
		jitter     float64
		want       time.Duration
	}{
		"after the first":             {1, 0, 0, 10 * time.Second},
		"after the second":            {2, 0, 0, time.Minute},
		"a fifth later at most":       {1, 0, 0.9999999999, 12 * time.Second},
		"half of that":                {1, 0, 0.5, 11 * time.Second},
		"earlier than the step":       {1, 3 * time.Second, 0, 10 * time.Second},
		"later than the step":         {1, 17 * time.Second, 0.9, 17 * time.Second},
		"sooner than the chosen time": {1, 10500 * time.Millisecond, 0.5, 11 * time.Second},
		"more than twice the step":    {1, time.Hour, 0.9, 20 * time.Second},
	} {
		got, ok := schedule.Next(test.failed, test.retryAfter, test.jitter)
		if !ok || got.Round(time.Millisecond) != test.want {
			t.Errorf("%s: %s, %t; want %s", desc, got, ok, test.want)
		}
	}
	for _, failed := range []int{3, 4, 1000} {
		if got, ok := schedule.Next(failed, time.Second, 0); ok {
			t.Errorf("after %d failures of 3: another attempt in %s", failed, got)
		}
	}
}

func TestValidate_DefaultOptions(t *testing.T) {
	options := DefaultOptions()
	options.RedisURL = "redis://127.0.0.1:6379"
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidate_Invalid(t *testing.T) {
	for desc, change := range map[string]func(*Options){
		"no namespace":                    func(o *Options) { o.CredentialsNamespace = "" },
		"no Redis":                        func(o *Options) { o.RedisURL = "" },
		"no ops address":                  func(o *Options) { o.Ops.Address = "" },
		"a lease shorter than an attempt": func(o *Options) { o.Lease = 17 * time.Second },
		"no attempt to an endpoint":       func(o *Options) { o.Concurrency = 0 },
		"no attempt at all":               func(o *Options) { o.MaxInFlight = -1 },
		"no time to fail":                 func(o *Options) { o.FailingLimit = 0 },
		"no time to stop":                 func(o *Options) { o.ShutdownTimeout = 0 },
		"no logger":                       func(o *Options) { o.Log = nil },
		"no schedule":                     func(o *Options) { o.Schedule = nil },
		"a late first attempt":            func(o *Options) { o.Schedule = Schedule{time.Second} },
		"a step back":                     func(o *Options) { o.Schedule = Schedule{0, -1} },
	} {
		options := DefaultOptions()
		options.RedisURL = "redis://127.0.0.1:6379"
		change(&options)
		if err := options.Validate(); err == nil {
			t.Errorf("%s: accepted", desc)
		}
	}
}
