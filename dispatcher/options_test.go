package dispatcher

import (
	"testing"
	"time"
)

func TestTheDefaultOptionsWork(t *testing.T) {
	options := DefaultOptions()
	options.RedisURL = "redis://127.0.0.1:6379"
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
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
