package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// load is what the API server has done since it was started.
type load struct {
	requests requests
	cpu      time.Duration
}

// requests counts what the API server was asked for, as "verb resource", with "refused" before it when the answer was an error.
type requests map[string]float64

const (
	refused        = "refused "
	requestsMetric = "apiserver_request_total"
	cpuMetric      = "process_cpu_seconds_total"
)

// kinds are those that the operator reads and writes. What else is asked for is the API server's own business, and the benchmark's.
func kinds() []string {
	return []string{merchantsResource, keysResource, "secrets", "configmaps", "events"}
}

// load asks the API server.
func (s *stand) load(ctx context.Context) (load, error) {
	text, err := s.plain.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return load{}, fmt.Errorf("ask the API server for its metrics: %w", err)
	}
	found, err := parseMetrics(string(text), requestsMetric, cpuMetric)
	if err != nil {
		return load{}, err
	}
	sum := load{requests: requests{}}
	for _, one := range found {
		if one.name == cpuMetric {
			sum.cpu = time.Duration(one.value * float64(time.Second))
			continue
		}
		resource := one.labels["resource"]
		if !slices.Contains(kinds(), resource) {
			continue
		}
		what := one.labels["verb"] + " " + resource
		if sub := one.labels["subresource"]; sub != "" {
			what += "/" + sub
		}
		if code := one.labels["code"]; !strings.HasPrefix(code, "2") && code != "0" { // 0 is of a watch
			what = refused + what
		}
		sum.requests[what] += one.value
	}
	return sum, nil
}

// since returns what was done in between.
func (l load) since(earlier load) load {
	between := load{requests: requests{}, cpu: l.cpu - earlier.cpu}
	for what, count := range l.requests {
		if more := count - earlier.requests[what]; more > 0 {
			between.requests[what] = more
		}
	}
	return between
}

// plus adds up two periods.
func (l load) plus(other load) load {
	sum := load{requests: maps.Clone(l.requests), cpu: l.cpu + other.cpu}
	for what, count := range other.requests {
		sum.requests[what] += count
	}
	return sum
}

// writes are those that were tried, refused ones too.
func (r requests) writes() (count float64) {
	for what, n := range r {
		if !r.reads(what) {
			count += n
		}
	}
	return count
}

// looks are reads of one object.
func (r requests) looks() (count float64) {
	for what, n := range r {
		if strings.HasPrefix(strings.TrimPrefix(what, refused), "GET ") {
			count += n
		}
	}
	return count
}

func (requests) reads(what string) bool {
	verb, _, _ := strings.Cut(strings.TrimPrefix(what, refused), " ")
	return slices.Contains([]string{"GET", "LIST", "WATCH"}, verb)
}
