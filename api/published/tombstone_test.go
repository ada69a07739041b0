package published_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// tombstone is a valid one with every field set.
func tombstone() published.Tombstone {
	return published.Tombstone{
		Version: 1, Kind: published.TombstoneApiKey, ID: "abcdefgh2345", Source: keyRecord().Source, EndedAt: issued,
	}
}

func TestTombstone_WireFormat(t *testing.T) {
	tombstoneFormat.checkWire(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials,
			Name:      "tombstone-key-abcdefgh2345",
			Labels:    map[string]string{"merchant-operator.io/published": "tombstone"},
		},
		Data: map[string]string{"tombstone.json": string(readGolden(t, "tombstone.json"))},
	})
	if got, want := tombstone().Expires(), issued.Add(90*24*time.Hour); !got.Equal(want) {
		t.Errorf("it expires at %s, want %s", got, want)
	}
}

func TestTombstone_Name(t *testing.T) {
	for kind, want := range map[published.TombstoneKind]string{
		"ApiKey": "tombstone-key-abcdefgh2345", "Merchant": "tombstone-merchant-abcdefgh2345",
	} {
		record := tombstone()
		record.Kind = kind
		if configMap, err := published.EncodeTombstone(credentials, record); err != nil || configMap.Name != want {
			t.Errorf("%s: %s, %v; want %s", kind, configMap.GetName(), err, want)
		}
	}
}

func TestTombstone_RoundTrip(t *testing.T) {
	tombstoneFormat.checkRoundTrip(t, func(t *rapid.T) published.Tombstone {
		return published.Tombstone{
			Version: 1,
			Kind:    rapid.SampledFrom([]published.TombstoneKind{"ApiKey", "Merchant"}).Draw(t, "kind"),
			ID:      rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "id"),
			Source:  drawSource(t),
			EndedAt: drawMoment.Draw(t, "endedAt"),
		}
	})
}

func TestDecodeTombstone_Invalid(t *testing.T) {
	tombstoneFormat.checkInvalid(t, map[string]set{
		"a missing version":       {"version", nil},
		"a newer version":         {"version", 2},
		"no kind":                 {"kind", nil},
		"an unknown kind":         {"kind", secretWord},
		"another kind":            {"kind", "Merchant"},
		"no id":                   {"id", nil},
		"an id that is none":      {"id", secretWord},
		"an id of another object": {"id", "zzzzzzzz2345"},
		"no source":               {"source", nil},
		"a source without a uid":  {"source.uid", nil},
		"no end":                  {"endedAt", nil},
		"an end that is none":     {"endedAt", secretWord},
	})
	if _, err := published.EncodeTombstone(credentials, published.Tombstone{}); !errors.Is(err, published.ErrInvalid) {
		t.Errorf("an empty tombstone: %v, want ErrInvalid", err)
	}
}

var drawMoment = rapid.Custom(func(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(0, 1<<37).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
})

func drawSource(t *rapid.T) published.Source {
	return published.Source{
		Namespace: rapid.StringN(1, 63, 253).Draw(t, "namespace"),
		Name:      rapid.StringN(1, 63, 253).Draw(t, "name"),
		UID:       types.UID(rapid.StringN(1, 36, 144).Draw(t, "uid")),
	}
}
