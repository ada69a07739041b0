package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// fakeIndex is filled by the test instead of by watches.
type fakeIndex struct {
	mu    sync.Mutex
	known map[string]endpoints.Endpoint
	keys  map[string]string // merchant ids by key id
	lists map[string]allowlist.List
}

func (i *fakeIndex) Allowlist(merchantID string) allowlist.List {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lists[merchantID]
}

func (i *fakeIndex) allow(merchantID string, list allowlist.List) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lists[merchantID] = list
}

func (i *fakeIndex) KeyIDs(bucket session.Bucket) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ids []string
	for keyID, merchantID := range i.keys {
		if session.BucketOf(merchantID) == bucket {
			ids = append(ids, keyID)
		}
	}
	return ids
}

func (i *fakeIndex) MerchantIDs(bucket session.Bucket) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ids []string
	for id := range i.known {
		if session.BucketOf(id) == bucket {
			ids = append(ids, id)
		}
	}
	return ids
}

func (i *fakeIndex) HasKey(keyID string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[keyID] != ""
}

func (i *fakeIndex) Endpoint(merchantID string) endpoints.Endpoint {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known[merchantID]
}

func (i *fakeIndex) put(endpoint endpoints.Endpoint) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known[endpoint.MerchantID] = endpoint
}

// recordingReporter remembers the reports.
type recordingReporter struct {
	mu    sync.Mutex
	made  []report
	tests []string // triggers
	lists []*v1alpha1.AllowlistStatus
	fail  error
}

func (r *recordingReporter) ReportAllowlist(_ context.Context, _ endpoints.Endpoint, refused *v1alpha1.AllowlistStatus) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.lists = append(r.lists, refused)
	return nil
}

func (r *recordingReporter) allowlists() []*v1alpha1.AllowlistStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lists)
}

func (r *recordingReporter) Report(_ context.Context, _ endpoints.Endpoint, made report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.made = append(r.made, made)
	return nil
}

func (r *recordingReporter) ReportTest(_ context.Context, endpoint endpoints.Endpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.tests = append(r.tests, endpoint.TestTrigger)
	return nil
}

func (r *recordingReporter) triggers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tests)
}

func (r *recordingReporter) all() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

// UpdateLastUses is that of the kubeReporter, which has its own test.
func (r *recordingReporter) UpdateLastUses(context.Context, int, func(map[string]time.Time) bool) error {
	return nil
}

// reasons are those of the reports, without reports of changed counts.
func (r *recordingReporter) reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reasons []string
	for i, made := range r.made {
		if i > 0 && made.reason == r.made[i-1].reason && made.state.CountsChanged() {
			continue
		}
		reasons = append(reasons, made.reason)
	}
	return reasons
}

func (r *recordingReporter) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}
