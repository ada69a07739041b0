package feed_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const sessionID = "ps_abcdefgh2345GHIJKLMNOPQRSTUVWX"

// Receivers keep these ids to know an event again, so they must not change.
func TestSessionEventID(t *testing.T) {
	id, err := session.ParseID(sessionID)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "evt_abcdefgh2345GHIJKLMNOPQRSTUVWX_"
	for mark, want := range map[feed.Mark]string{
		feed.MarkCreated:                  "created",
		feed.MarkEnded:                    "ended",
		feed.MarkLate("bank", "abc"):      "late_edf15b16808091f0", // of SHA-256 of "bank abc"
		feed.MarkMismatch("bank", "abc"):  "mismatch_edf15b16808091f0",
		feed.MarkRefund("bank", "abc"):    "refund_edf15b16808091f0",
		feed.MarkLate("card", "abc"):      "late_42027efab571f275",
		feed.MarkLate("bank", "a/b c.ü"):  "late_52bcc229a6a030d4",
		feed.MarkMismatch("bank", "abc "): "mismatch_d28fb43f4e4437c1",
	} {
		got := feed.SessionEventID(id, mark)
		if !strings.HasPrefix(got, begin) || !regexp.MustCompile(`^[A-Za-z0-9_]+$`).MatchString(got) {
			t.Errorf("%s is not an event id of this session", got)
		}
		if strings.TrimPrefix(got, begin) != want {
			t.Errorf("%s, want it to end in %s", got, want)
		}
	}
}

func TestNewKeyRotated(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000).UTC()
	rotation := feed.KeyRotation{KeyID: "abcdefghijkl", Prefix: "mk_live_abcdefghijkl_AbCd", Generation: 7, Cause: v1alpha1.RotationAPI}
	want := feed.Event{
		ID: "evt_key_abcdefghijkl_7_1700000000000", Kind: v1alpha1.EventKeyRotated,
		MerchantID: "mmmmmmmmmmmm", MerchantName: "Acme Coffee", OccurredAt: at, Key: &rotation,
	}
	if diff := cmp.Diff(want, feed.NewKeyRotated("mmmmmmmmmmmm", "Acme Coffee", rotation, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKinds: what a webhook can list, and tests, are all kinds there are.
func TestKinds(t *testing.T) {
	want := slices.Sorted(slices.Values(append(v1alpha1.WebhookEvents(), v1alpha1.EventWebhookTest)))
	if diff := cmp.Diff(want, feed.Kinds()); diff != "" {
		t.Error(diff)
	}
}
