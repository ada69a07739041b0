package v1alpha1_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestTimeZone_Location(t *testing.T) {
	for zone, want := range map[v1alpha1.TimeZone]string{
		"Europe/Berlin": "Europe/Berlin", "UTC": "UTC", "": "UTC",
		"Moon/Tycho": "UTC", // a merchant must not fail for a zone of a newer database
	} {
		if got := zone.Location().String(); got != want {
			t.Errorf("%q: %s, want %s", zone, got, want)
		}
	}
}

func TestWebhookEvent_Listed(t *testing.T) {
	only := []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated}
	for name, test := range map[string]struct {
		event v1alpha1.WebhookEvent
		list  []v1alpha1.WebhookEvent
		want  bool
	}{
		"no list":              {v1alpha1.EventKeyRotated, nil, true},
		"created, no list":     {v1alpha1.EventSessionCreated, nil, false},
		"listed":               {v1alpha1.EventSessionCreated, only, true},
		"not listed":           {v1alpha1.EventKeyRotated, only, false},
		"a test, no list":      {v1alpha1.EventWebhookTest, nil, true},
		"a test, another list": {v1alpha1.EventWebhookTest, only, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.event.Listed(test.list); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
