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
