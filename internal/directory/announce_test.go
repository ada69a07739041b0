package directory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// news keeps what was announced, and what the directory answered at that moment.
type news struct {
	told []string
	// look, if set, is called with each piece of news.
	look func()
}

func (n *news) Announce(record published.KeyRecord) {
	n.tell("announce %s revision %d", record.MerchantID, record.Revision)
}

func (n *news) Revoke(record published.KeyRecord) {
	n.tell("revoke %s revision %d", record.MerchantID, record.Revision)
}

func (n *news) End(record published.KeyRecord) { n.tell("end %s", record.MerchantID) }

func (n *news) Check(record published.KeyRecord) {
	n.tell("check %s revision %d", record.MerchantID, record.Revision)
}

func (n *news) tell(format string, args ...any) {
	n.told = append(n.told, fmt.Sprintf(format, args...))
	if n.look != nil {
		n.look()
	}
}

func TestWhatIsNewsAboutAKey(t *testing.T) {
	coffee, books := published.ID("coffee"), published.ID("books")
	with := func(merchant types.UID, revision int64) *corev1.Secret {
		_, record := issue(t, "till", merchant, func(r *published.KeyRecord) { r.Revision = revision })
		return secretOf(t, record)
	}
	broken := with("coffee", 6)
	broken.Data = nil
	for desc, test := range map[string]struct {
		then func(scene)
		want []string
	}{
		"a newer revision": {func(s scene) { _ = s.keyInformer.Update(with("coffee", 6)) }, []string{"announce " + coffee + " revision 6"}},
		"the same again":   {func(s scene) { _ = s.keyInformer.Update(with("coffee", 5)) }, nil},
		"one that was put back": {
			func(s scene) { _ = s.keyInformer.Update(with("coffee", 4)) },
			[]string{"announce " + coffee + " revision 5", "check " + coffee + " revision 4"},
		},
		"its tombstone": {
			func(s scene) { s.bury(t, recordOf(t, with("coffee", 5))) },
			[]string{"end " + coffee},
		},
		"its tombstone, behind its deletion": {
			func(s scene) {
				_ = s.keyInformer.Delete(with("coffee", 5))
				s.bury(t, recordOf(t, with("coffee", 5)))
			},
			[]string{"revoke " + coffee + " revision 5", "end " + coffee},
		},
		"the same tombstone again": {
			func(s scene) {
				s.bury(t, recordOf(t, with("coffee", 5)))
				s.bury(t, recordOf(t, with("coffee", 5)))
			},
			[]string{"end " + coffee},
		},
		"put back behind its tombstone": {
			func(s scene) {
				s.bury(t, recordOf(t, with("coffee", 5)))
				_ = s.keyInformer.Delete(with("coffee", 5))
				_ = s.keyInformer.Add(with("coffee", 5))
			},
			[]string{"end " + coffee, "revoke " + coffee + " revision 5", "end " + coffee},
		},
		"its deletion":          {func(s scene) { _ = s.keyInformer.Delete(with("coffee", 5)) }, []string{"revoke " + coffee + " revision 5"}},
		"missing on a relist":   {func(s scene) { _ = s.keyInformer.Replace(nil, "9") }, []string{"revoke " + coffee + " revision 5"}},
		"a record nobody reads": {func(s scene) { _ = s.keyInformer.Update(broken) }, []string{"revoke " + coffee + " revision 5"}},
		"newer on a relist": {
			func(s scene) { _ = s.keyInformer.Replace([]any{with("coffee", 7)}, "9") },
			[]string{"announce " + coffee + " revision 7"},
		},
		"another merchant's": {
			func(s scene) { _ = s.keyInformer.Update(with("books", 6)) },
			[]string{"revoke " + coffee + " revision 5", "announce " + books + " revision 6"},
		},
	} {
		t.Run(desc, func(t *testing.T) {
			s := newScene()
			_ = s.keyInformer.Replace([]any{with("coffee", 5)}, "1")
			if diff := cmp.Diff([]string{"check " + coffee + " revision 5"}, s.news.told); diff != "" {
				t.Errorf("news of the first sight (-want +got):\n%s", diff)
			}
			s.news.told = nil
			test.then(s)
			if diff := cmp.Diff(test.want, s.news.told); diff != "" {
				t.Errorf("news (-want +got):\n%s", diff)
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
func TestNewsAreToldBeforeTheyAreActedOn(t *testing.T) {
	s := newScene()
	plaintext, record := issue(t, "till", "coffee")
	_ = s.keyInformer.Add(secretOf(t, record))
	_ = s.merchantInformer.Add(configMapOf(t, merchantRecord("coffee")))
	looked := 0
	s.news.look = func() {
		looked++
		if got, err := s.Identify(plaintext, now); err != nil || !got.Live {
			t.Errorf("while the news are told the key is refused already: %+v, %v", got, err)
		}
	}
	_ = s.keyInformer.Delete(secretOf(t, record))
	if _, err := s.Identify(plaintext, now); looked != 1 || err == nil {
		t.Errorf("told %d times; the deleted key is identified with error %v", looked, err)
	}
}
