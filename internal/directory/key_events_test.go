package directory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// keyEvents records the calls of a KeyHandler.
type keyEvents struct {
	calls []string
	// onCall, if set, is called with each call.
	onCall func()
}

func (e *keyEvents) KeyUpdated(record published.KeyRecord) {
	e.record("updated %s revision %d", record.MerchantID, record.Revision)
}

func (e *keyEvents) KeyRevoked(record published.KeyRecord) {
	e.record("revoked %s revision %d", record.MerchantID, record.Revision)
}

func (e *keyEvents) KeyEnded(record published.KeyRecord, _ time.Time) {
	e.record("ended %s", record.MerchantID)
}

func (e *keyEvents) KeyUnverified(record published.KeyRecord) {
	e.record("unverified %s revision %d", record.MerchantID, record.Revision)
}

func (e *keyEvents) record(format string, args ...any) {
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
	if e.onCall != nil {
		e.onCall()
	}
}

func TestKeyEvents(t *testing.T) {
	coffee, books := published.ID("coffee"), published.ID("books")
	with := func(merchant types.UID, revision int64) *corev1.Secret {
		_, record := issue(t, "till", merchant, func(r *published.KeyRecord) { r.Revision = revision })
		return secretOf(t, record)
	}
	broken := with("coffee", 6)
	broken.Data = nil
	for desc, test := range map[string]struct {
		then func(fixture)
		want []string
	}{
		"a newer revision": {func(f fixture) { _ = f.keyInformer.Update(with("coffee", 6)) }, []string{"updated " + coffee + " revision 6"}},
		"the same again":   {func(f fixture) { _ = f.keyInformer.Update(with("coffee", 5)) }, nil},
		"one that was put back": {
			func(f fixture) { _ = f.keyInformer.Update(with("coffee", 4)) },
			[]string{"updated " + coffee + " revision 5", "unverified " + coffee + " revision 4"},
		},
		"its tombstone": {
			func(f fixture) { f.writeTombstone(t, recordOf(t, with("coffee", 5))) },
			[]string{"ended " + coffee},
		},
		"its tombstone, behind its deletion": {
			func(f fixture) {
				_ = f.keyInformer.Delete(with("coffee", 5))
				f.writeTombstone(t, recordOf(t, with("coffee", 5)))
			},
			[]string{"revoked " + coffee + " revision 5", "ended " + coffee},
		},
		"the same tombstone again": {
			func(f fixture) {
				f.writeTombstone(t, recordOf(t, with("coffee", 5)))
				f.writeTombstone(t, recordOf(t, with("coffee", 5)))
			},
			[]string{"ended " + coffee},
		},
		"put back behind its tombstone": {
			func(f fixture) {
				f.writeTombstone(t, recordOf(t, with("coffee", 5)))
				_ = f.keyInformer.Delete(with("coffee", 5))
				_ = f.keyInformer.Add(with("coffee", 5))
			},
			[]string{"ended " + coffee, "revoked " + coffee + " revision 5", "ended " + coffee},
		},
		"its deletion":          {func(f fixture) { _ = f.keyInformer.Delete(with("coffee", 5)) }, []string{"revoked " + coffee + " revision 5"}},
		"missing on a relist":   {func(f fixture) { _ = f.keyInformer.Replace(nil, "9") }, []string{"revoked " + coffee + " revision 5"}},
		"a record nobody reads": {func(f fixture) { _ = f.keyInformer.Update(broken) }, []string{"revoked " + coffee + " revision 5"}},
		"newer on a relist": {
			func(f fixture) { _ = f.keyInformer.Replace([]any{with("coffee", 7)}, "9") },
			[]string{"updated " + coffee + " revision 7"},
		},
		"another merchant's": {
			func(f fixture) { _ = f.keyInformer.Update(with("books", 6)) },
			[]string{"revoked " + coffee + " revision 5", "updated " + books + " revision 6"},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := newFixture()
			_ = f.keyInformer.Replace([]any{with("coffee", 5)}, "1")
			if diff := cmp.Diff([]string{"unverified " + coffee + " revision 5"}, f.events.calls); diff != "" {
				t.Errorf("events of the first sight (-want +got):\n%s", diff)
			}
			f.events.calls = nil
			test.then(f)
			if diff := cmp.Diff(test.want, f.events.calls); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func recordOf(t *testing.T, secret *corev1.Secret) published.KeyRecord {
	t.Helper()
	record, err := published.DecodeKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// Were it the other way round, one replica could refuse a key that another accepts afterwards.
func TestTheHandlerIsCalledBeforeTheIndexChanges(t *testing.T) {
	f := newFixture()
	plaintext, record := issue(t, "till", "coffee")
	_ = f.keyInformer.Add(secretOf(t, record))
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("coffee")))
	called := 0
	f.events.onCall = func() {
		called++
		if got, err := f.Identify(plaintext, now); err != nil || !got.Live {
			t.Errorf("during the call the key is refused already: %+v, %v", got, err)
		}
	}
	_ = f.keyInformer.Delete(secretOf(t, record))
	if _, err := f.Identify(plaintext, now); called != 1 || err == nil {
		t.Errorf("called %d times; the deleted key is identified with error %v", called, err)
	}
}
