package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestWhoMayIssueKeys(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail, stranger := f.issuer("console"), f.rail("bank"), f.account("stranger")
	r := f.start()
	for name, token := range map[string]string{"a rail": rail, "anybody else": stranger} {
		for _, path := range []string{id, "aaaaaaaaaaaa", "x"} { // nobody learns which keys there are
			got := r.issue(path, token, `{`)
			if got.status != http.StatusForbidden || got.body["error"] != notAllowed {
				t.Errorf("%s gets %d %s for %s", name, got.status, got.raw, path)
			}
		}
	}
	for _, token := range []string{"", "a.b.c", console[:len(console)-8] + "AAAAAAAA"} {
		r.issue(id, token, f.of(1, 0)).wantError(t, http.StatusUnauthorized, notAccepted)
	}
	r.report("x", console, "").wantError(t, http.StatusForbidden, notAllowed)
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, f.of(1, 0)))
}

func TestKeysThatCannotBeIssued(t *testing.T) {
	f := newFixture(t)
	console := f.issuer("console")
	r := f.start()
	for _, id := range []string{"aaaaaaaaaaaa", "AAAAAAAAAAAA", "a", "..", "%2e%2e%2f", "aaaaaaaaaaa1", strings.Repeat("a", 300)} {
		r.issue(id, console, f.of(1, 0)).want(t, http.StatusNotFound)
	}
}

// A key id is public. A request with it and with another ApiKey is that of a caller that was deceived: it gets what it gets for an
// unknown key, and nothing is rotated or counted.
func TestIssue_KeyIDOfAnotherApiKey(t *testing.T) {
	f := newFixture(t)
	victim := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(victim)
	if err != nil {
		t.Fatal(err)
	}
	f.key("thief", f.merchant("thief"))
	before, console := f.recordOf(parsed.ID()), f.issuer("console")
	r := f.start()
	uid := f.namespace + "/till"
	for name, source := range map[string]string{
		"another ApiKey":    f.source("thief"),
		"another namespace": `"namespace":"thieves","name":"till","uid":"` + uid + `"`,
		"another name":      `"namespace":"shops","name":"thief","uid":"` + uid + `"`,
		"created again":     `"namespace":"shops","name":"till","uid":"` + uid + `-2"`,
	} {
		got := r.issue(parsed.ID(), console, `{`+source+`,"expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`)
		unknown := r.issue("aaaaaaaaaaaa", console, f.of(1, 0))
		got.want(t, http.StatusNotFound)
		if diff := cmp.Diff(unknown.body, got.body); diff != "" || got.header.Get("RateLimit") != "" {
			t.Errorf("%s: %s %v, unlike an unknown key", name, got.raw, got.header)
		}
	}
	if diff := cmp.Diff(before, f.recordOf(parsed.ID())); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	r.call(http.MethodGet, me, victim, "").want(t, http.StatusOK)
}

func TestRequestsToIssueAKeyThatAreRefused(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start()
	const (
		generation = "expectedGeneration must be the current generation of the key, an integer of at least 1"
		overlap    = "overlapSeconds must be an integer from 0 to 31536000 (a year); 0 ends all old keys at once"
		actor      = "actor must be 1 to 256 printable characters: who asks for the rotation"
		namespace  = "namespace must be that of the ApiKey"
		name       = "name must be that of the ApiKey"
		uid        = "uid must be metadata.uid of the ApiKey"
	)
	for body, want := range map[string]string{
		``:                                 "body must be one JSON object",
		`[]`:                               "body must be one JSON object",
		`{"overlapSeconds":0,"actor":"a"}`: generation,
		`{"expectedGeneration":0,"overlapSeconds":0,"actor":"a"}`:                                            generation,
		`{"expectedGeneration":-1,"overlapSeconds":0,"actor":"a"}`:                                           generation,
		`{"expectedGeneration":1.5,"overlapSeconds":0,"actor":"a"}`:                                          generation,
		`{"expectedGeneration":"1","overlapSeconds":0,"actor":"a"}`:                                          generation,
		`{"expectedGeneration":null,"overlapSeconds":0,"actor":"a"}`:                                         generation,
		`{"expectedGeneration":1,"actor":"a"}`:                                                               overlap,
		`{"expectedGeneration":1,"overlapSeconds":-1,"actor":"a"}`:                                           overlap,
		`{"expectedGeneration":1,"overlapSeconds":31536001,"actor":"a"}`:                                     overlap,
		`{"expectedGeneration":1,"overlapSeconds":0}`:                                                        actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":""}`:                                             actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":" "}`:                                            actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":7}`:                                              actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\nb"}`:                                         actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\u202eb"}`:                                     actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\u200bb"}`:                                     actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"` + long(257) + `"}`:                            actor,
		`{"name":"till","uid":"u","expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`:                    namespace,
		`{"namespace":"shops","uid":"u","expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`:              name,
		`{"namespace":"shops","name":"till","expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`:          uid,
		`{"namespace":"shops","name":"till","uid":"","expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`: uid,
		`{"namespace":"shops","name":"till","uid":7,"expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`:  uid,
		`{"expectedGeneration":1,"expectedGeneration":2,"overlapSeconds":0,"actor":"a"}`:                     `duplicate field "expectedGeneration"`,
	} {
		got := r.issue(id, console, body)
		if got.status != http.StatusBadRequest || got.body["error"] != want {
			t.Errorf("%s gets %d %s, want 400 %s", body, got.status, got.raw, want)
		}
	}
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, `{`+f.source("till")+`,"expectedGeneration":1e0,"overlapSeconds":31536000,"actor":"`+long(256)+`","note":"ignored"}`))
}

func long(characters int) string { return strings.Repeat("☕", characters) }

// A leaked key is disabled first, and enabled again when its holder has another.
func TestADisabledKeyIsRotatedForLater(t *testing.T) {
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	parsed, err := apikey.Parse(old)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	fresh := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), f.of(1, 3600)))
	for _, key := range []string{old, fresh} {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	}
	if state := f.recordOf(parsed.ID()).State; state != v1alpha1.ApiKeyDisabled {
		t.Errorf("state %s", state)
	}
}

// A key in its overlap may be in many hands. It must not keep the owner, or the console, from rotating.
func TestRotate_ReplacedKeyUsesUpNothing(t *testing.T) {
	f := newFixture(t)
	var replaced, id string
	current := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 3} }),
		func(r *published.KeyRecord) {
			id = r.KeyID
			replaced = f.newKey(id).Reveal()
			r.Previous = []published.Previous{{Digest: apikey.DigestOf(replaced), ValidUntil: time.Now().Add(time.Hour).UTC()}}
		})
	console := f.issuer("console")
	r := f.start()
	r.call(http.MethodGet, me, replaced, "").want(t, http.StatusOK)
	for range 110 {
		got := r.call(http.MethodPost, rotate, replaced, "").want(t, http.StatusUnauthorized)
		if got.header.Get("RateLimit") != "" {
			t.Fatalf("the refusal has %v", got.header)
		}
	}
	r.call(http.MethodGet, me, current, "").want(t, http.StatusOK) // the merchant's own limit
	f.rotated(r, current)
	f.issuedKey(r.issue(id, console, f.of(2, 0)))
}

// A merchant's program that rotates without end leaves the console its rotations, and the other way round.
func TestRotate_ListenersHaveABudgetEach(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	console := f.issuer("console")
	r := f.start()
	limited := func(got result) bool {
		if got.status != http.StatusTooManyRequests {
			return false
		}
		if got.header.Get("Retry-After") != "1" || !strings.HasPrefix(got.header.Get("RateLimit"), `"rotations";r=0;`) {
			t.Errorf("the refusal has %v", got.header)
		}
		return true
	}
	generation := 1
	eventually(t, "the console's rotations are used up", func() bool {
		r.issue(parsed.ID(), console, f.of(generation+1, 0)).want(t, http.StatusConflict) // rotates nothing, so it is not counted
		got := r.issue(parsed.ID(), console, f.of(generation, 0))
		if limited(got) {
			return true
		}
		key = f.issuedKey(got)
		generation++
		return false
	})
	if generation <= 100 {
		t.Errorf("%d rotations passed", generation-1)
	}
	eventually(t, "the merchant's rotations are used up", func() bool {
		got := r.call(http.MethodPost, rotate, key, "")
		if limited(got) {
			return true
		}
		key = f.issuedKey(got)
		generation++
		return false
	})
	if generation <= 200 {
		t.Errorf("%d rotations passed", generation-1)
	}
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

// countReads counts the reads of paths with a part, of replicas that start from now on.
func (f *fixture) countReads(part string) *atomic.Int64 {
	var reads atomic.Int64
	f.kubeConfig = rest.CopyConfig(f.kubeConfig)
	f.kubeConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, part) {
				reads.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	return &reads
}

// Whoever may rotate asks without end for what rotates nothing. The Kubernetes API is read a bounded number of times, each request has the
// right answer, and the owner rotates meanwhile.
func TestIssue_LoopOfRefusedRequests(t *testing.T) {
	const clients, each = 16, 60
	for name, row := range map[string]struct {
		ask  func(f *fixture, till string, n int) (keyID, body string)
		want int
	}{
		"wrong generations": {
			func(f *fixture, till string, n int) (string, string) { return till, f.of(1000+n, 0) }, http.StatusConflict,
		},
		"another ApiKey": {
			func(f *fixture, till string, _ int) (string, string) {
				return till, `{` + f.source("thief") + `,"expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`
			}, http.StatusNotFound,
		},
		"unknown key ids": {
			func(f *fixture, _ string, n int) (string, string) {
				return published.ID(types.UID(fmt.Sprint(n))), f.of(1, 0)
			}, http.StatusNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			till := f.unissued("till", f.merchant("acme"))
			console, looping := f.issuer("console"), f.issuer("looping")
			reads := f.countReads("/secrets/key-")
			r := f.start()
			began := time.Now()
			var loop sync.WaitGroup
			for client := range clients {
				loop.Go(func() {
					for n := range each {
						keyID, body := row.ask(f, till, client*each+n)
						if got := r.issue(keyID, looping, body); got.status != row.want {
							t.Errorf("status %d, want %d: %s", got.status, row.want, got.raw)
						}
					}
				})
			}
			const rotations = 5
			for generation := range rotations {
				f.issuedKey(r.issue(till, console, f.of(generation+1, 0)))
			}
			loop.Wait()
			f.issuedKey(r.issue(till, console, f.of(rotations+1, 0)))
			seconds := int64(time.Since(began)/time.Second) + 1
			// The burst, ten reads of their own and ten shared ones a second, and two for each rotation.
			if got, most := reads.Load(), 100+20*seconds+2*(rotations+1); got > most {
				t.Errorf("%d requests cost %d reads in %d s, want at most %d", clients*each, got, seconds, most)
			}
		})
	}
}
