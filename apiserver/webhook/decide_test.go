package webhook

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/apiserver/webhook/endpoints"
)

func TestWhatIsDoneWithALeasedEvent(t *testing.T) {
	occurred := noon
	lease := func(kind v1alpha1.WebhookEvent, state store.EndpointState) store.Lease {
		return store.Lease{Event: outbox.Event{Kind: kind, OccurredAt: occurred}, Endpoint: state}
	}
	signed := endpoints.Endpoint{URL: "https://shop.example", Target: "here", Secrets: []published.SigningSecret{published.NewSigningSecret()}}
	unsigned := endpoints.Endpoint{URL: "https://shop.example", Target: "here"}
	disabled := store.EndpointState{Target: "here", DisabledAt: noon}
	elsewhere := store.EndpointState{Target: "there", DisabledAt: noon}
	failing := store.EndpointState{Target: "here", FailingSince: noon}
	const completed, created = v1alpha1.EventSessionCompleted, v1alpha1.EventSessionCreated

	for desc, test := range map[string]struct {
		lease      store.Lease
		endpoint   endpoints.Endpoint
		known      bool
		knownUntil time.Time
		want       decision
	}{
		"all is well":                    {lease(completed, store.EndpointState{}), signed, true, occurred.Add(-time.Hour), decision{move: send}},
		"it has failed":                  {lease(completed, failing), signed, true, occurred, decision{move: send}},
		"not asked for":                  {lease(created, store.EndpointState{}), signed, true, occurred, decision{move: drop}},
		"no webhook":                     {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, true, occurred.Add(-time.Hour), decision{move: drop}},
		"not asked for, and disabled":    {lease(created, disabled), signed, true, occurred, decision{move: drop}},
		"nobody, and the index is old":   {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, false, occurred.Add(indexLag), decision{wait, deferredUnknown, knowledgePause}},
		"nobody, and the index is newer": {lease(completed, store.EndpointState{}), endpoints.Endpoint{}, false, occurred.Add(indexLag + time.Millisecond), decision{move: drop}},
		"there, but unreadable":          {lease(completed, store.EndpointState{}), endpoints.Endpoint{Unreadable: true}, false, occurred.Add(time.Hour), decision{wait, deferredUnreadable, repairPause}},
		"no secret yet":                  {lease(completed, store.EndpointState{}), unsigned, true, occurred, decision{wait, deferredUnsigned, knowledgePause}},
		"disabled":                       {lease(completed, disabled), signed, true, occurred, decision{move: bury}},
		"disabled, and no secret":        {lease(completed, disabled), unsigned, true, occurred, decision{move: bury}},
		"disabled elsewhere":             {lease(completed, elsewhere), signed, true, occurred, decision{move: resume}},
		"disabled elsewhere, no secret":  {lease(completed, elsewhere), unsigned, true, occurred, decision{wait, deferredUnsigned, knowledgePause}},
	} {
		if got := decide(test.lease, test.endpoint, test.known, test.knownUntil); got != test.want {
			t.Errorf("%s: %+v, want %+v", desc, got, test.want)
		}
	}
}
