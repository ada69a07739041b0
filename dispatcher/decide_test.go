package dispatcher

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestWhatIsDoneWithALeasedEvent(t *testing.T) {
	lease := func(kind v1alpha1.WebhookEvent, state store.EndpointState) store.Lease {
		return store.Lease{Event: outbox.Event{Kind: kind, OccurredAt: noon}, Endpoint: state}
	}
	signed := endpoints.Endpoint{State: endpoints.Published, URL: "https://shop.example", Target: "here", Secrets: []published.SigningSecret{published.NewSigningSecret()}}
	unsigned := endpoints.Endpoint{State: endpoints.Published, URL: "https://shop.example", Target: "here"}
	disabled := store.EndpointState{Target: "here", DisabledAt: noon}
	elsewhere := store.EndpointState{Target: "there", DisabledAt: noon}
	failing := store.EndpointState{Target: "here", FailingSince: noon}
	newer := store.Lease{Event: outbox.Event{OccurredAt: noon}, Unsupported: true}
	const month = 30 * 24 * time.Hour
	const completed, created = v1alpha1.EventSessionCompleted, v1alpha1.EventSessionCreated

	for desc, test := range map[string]struct {
		lease    store.Lease
		endpoint endpoints.Endpoint
		age      time.Duration
		want     decision
	}{
		"all is well":                   {lease(completed, store.EndpointState{}), signed, 0, decision{move: send}},
		"it has failed":                 {lease(completed, failing), signed, 0, decision{move: send}},
		"not asked for":                 {lease(created, store.EndpointState{}), signed, 0, decision{move: drop}},
		"no webhook":                    {lease(completed, store.EndpointState{}), endpoints.Endpoint{State: endpoints.Published}, 0, decision{move: drop}},
		"not asked for, and disabled":   {lease(created, disabled), signed, 0, decision{move: drop}},
		"withdrawn":                     {lease(completed, store.EndpointState{}), endpoints.Endpoint{State: endpoints.Withdrawn}, 0, decision{move: drop}},
		"nobody yet":                    {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, time.Second, decision{wait, deferredUnknown, 2 * time.Second}},
		"nobody for a minute":           {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, time.Minute, decision{wait, deferredUnknown, 30 * time.Second}},
		"nobody for a month":            {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, month, decision{wait, deferredUnknown, 5 * time.Minute}},
		"before it happened":            {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, -time.Hour, decision{wait, deferredUnknown, 2 * time.Second}},
		"there, but unreadable":         {lease(completed, store.EndpointState{}), endpoints.Endpoint{State: endpoints.Undecodable}, month, decision{wait, deferredUndecodable, 5 * time.Minute}},
		"of a newer version":            {newer, signed, 0, decision{wait, deferredUnsupported, 2 * time.Second}},
		"of a newer version, withdrawn": {newer, endpoints.Endpoint{State: endpoints.Withdrawn}, 0, decision{wait, deferredUnsupported, 2 * time.Second}},
		"no secret yet":                 {lease(completed, store.EndpointState{}), unsigned, 0, decision{wait, deferredUnsigned, 2 * time.Second}},
		"disabled":                      {lease(completed, disabled), signed, 0, decision{move: bury}},
		"disabled, and no secret":       {lease(completed, disabled), unsigned, 0, decision{move: bury}},
		"disabled elsewhere":            {lease(completed, elsewhere), signed, 0, decision{move: resume}},
		"disabled elsewhere, no secret": {lease(completed, elsewhere), unsigned, 0, decision{wait, deferredUnsigned, 2 * time.Second}},
	} {
		if got := decide(test.lease, test.endpoint, noon.Add(test.age)); got != test.want {
			t.Errorf("%s: %+v, want %+v", desc, got, test.want)
		}
	}
}
