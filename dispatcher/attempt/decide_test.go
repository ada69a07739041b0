package attempt

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	lease := func(kind v1alpha1.WebhookEvent, state outbox.EndpointState) outbox.Lease {
		return outbox.Lease{Event: feed.Event{Kind: kind, OccurredAt: noon}, Endpoint: state}
	}
	signed := endpoints.Endpoint{State: endpoints.Published, URL: "https://shop.example", Target: "here", Secrets: []published.SigningSecret{published.NewSigningSecret()}}
	unsigned := endpoints.Endpoint{State: endpoints.Published, URL: "https://shop.example", Target: "here"}
	removed := endpoints.Endpoint{State: endpoints.Published, RemovedAt: noon.Add(-30 * 24 * time.Hour)} // only the operator ends the wait
	givenUp := endpoints.Endpoint{State: endpoints.Published, RemovedAt: noon, Dropped: true}
	disabled := outbox.EndpointState{Target: "here", DisabledAt: noon}
	elsewhere := outbox.EndpointState{Target: "there", DisabledAt: noon}
	unreadable := outbox.EndpointState{Target: "here", Unreadable: true}
	unreadableElsewhere := outbox.EndpointState{Unreadable: true}
	failing := outbox.EndpointState{Target: "here", FailingSince: noon}
	inTestMode := func(lease outbox.Lease) outbox.Lease {
		lease.Event.TestMode = true
		return lease
	}
	newer := outbox.Lease{Event: feed.Event{OccurredAt: noon}, Unsupported: true}
	const month = 30 * 24 * time.Hour
	const completed, created = v1alpha1.EventSessionCompleted, v1alpha1.EventSessionCreated

	for desc, test := range map[string]struct {
		lease    outbox.Lease
		endpoint endpoints.Endpoint
		age      time.Duration
		want     Decision
	}{
		"all is well":                   {lease(completed, outbox.EndpointState{}), signed, 0, Decision{Action: Send}},
		"it has failed":                 {lease(completed, failing), signed, 0, Decision{Action: Send}},
		"not asked for":                 {lease(created, outbox.EndpointState{}), signed, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"no webhook":                    {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{State: endpoints.Published}, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"not asked for, and disabled":   {lease(created, disabled), signed, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"removed":                       {lease(completed, outbox.EndpointState{}), removed, 0, Decision{Defer, deferredRemoved, 2 * time.Second}},
		"removed, not asked for":        {lease(created, outbox.EndpointState{}), removed, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"given up after it waited":      {lease(completed, outbox.EndpointState{}), givenUp, 0, Decision{Action: Drop, Reason: OutcomeRemoved}},
		"withdrawn":                     {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{State: endpoints.Withdrawn}, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"nobody yet":                    {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{}, time.Second, Decision{Defer, deferredUnknown, 2 * time.Second}},
		"nobody for a minute":           {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{}, time.Minute, Decision{Defer, deferredUnknown, 30 * time.Second}},
		"nobody for a month":            {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{}, month, Decision{Defer, deferredUnknown, 5 * time.Minute}},
		"before it happened":            {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{}, -time.Hour, Decision{Defer, deferredUnknown, 2 * time.Second}},
		"there, but undecodable":        {lease(completed, outbox.EndpointState{}), endpoints.Endpoint{State: endpoints.Undecodable}, month, Decision{Defer, deferredUndecodable, 5 * time.Minute}},
		"of a newer version":            {newer, signed, 0, Decision{Defer, deferredUnsupported, 2 * time.Second}},
		"of a newer version, withdrawn": {newer, endpoints.Endpoint{State: endpoints.Withdrawn}, 0, Decision{Defer, deferredUnsupported, 2 * time.Second}},
		"no secret yet":                 {lease(completed, outbox.EndpointState{}), unsigned, 0, Decision{Defer, deferredUnsigned, 2 * time.Second}},
		"disabled":                      {lease(completed, disabled), signed, 0, Decision{Action: DeadLetter}},
		"unreadable":                    {lease(completed, unreadable), signed, time.Minute, Decision{Defer, deferredUnreadable, 30 * time.Second}},
		"unreadable, not asked for":     {lease(created, unreadable), signed, 0, Decision{Action: Drop, Reason: outcomeDropped}},
		"unreadable, another target":    {lease(completed, unreadableElsewhere), signed, 0, Decision{Resume, deferredUnreadable, 2 * time.Second}},
		"disabled, and no secret":       {lease(completed, disabled), unsigned, 0, Decision{Action: DeadLetter}},
		"disabled, a test":              {inTestMode(lease(completed, disabled)), signed, 0, Decision{Action: Send}},
		"disabled elsewhere, a test":    {inTestMode(lease(completed, elsewhere)), signed, 0, Decision{Action: Send}},
		"unreadable, a test":            {inTestMode(lease(completed, unreadable)), signed, 0, Decision{Action: Send}},
		"disabled elsewhere":            {lease(completed, elsewhere), signed, 0, Decision{Resume, deferredUnreadable, 2 * time.Second}},
		"disabled elsewhere, no secret": {lease(completed, elsewhere), unsigned, 0, Decision{Defer, deferredUnsigned, 2 * time.Second}},
	} {
		if got := decide(test.lease, test.endpoint, noon.Add(test.age)); got != test.want {
			t.Errorf("%s: %+v, want %+v", desc, got, test.want)
		}
	}
}
