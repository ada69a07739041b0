package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/audittest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// rotationPath is what an issuer's ClusterRole names, as docs/rotation-api.md says.
const rotationPath = "/internal/v1/keys/{keyID}/rotate"

// issuer makes a service account that may issue keys and returns a token of it.
func (f *fixture) issuer(name string) string {
	f.t.Helper()
	token := f.account(name)
	f.allow(name, rotationPath, rotationPath, "post")
	return token
}

// unissued publishes a key that nobody has, as the operator does with delivery.policy None, and returns its id.
func (f *fixture) unissued(name string, merchant published.MerchantRecord) string {
	f.t.Helper()
	key, err := apikey.Parse(f.key(name, merchant, func(r *published.KeyRecord) {
		r.Current = published.Placeholder(r.Current.CreatedAt)
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	return key.ID()
}

// issue rotates a key id with the internal API.
func (r *replica) issue(keyID, token, body string, headers ...string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, issuePath(keyID), token, body, headers...)
}

func issuePath(keyID string) string { return "/internal/v1/keys/" + keyID + "/rotate" }

// rotation is a request to rotate a generation of the ApiKey till.
func (f *fixture) rotation(generation, overlapSeconds int) string {
	return fmt.Sprintf(`{%s,"expectedGeneration":%d,"overlapSeconds":%d,"actor":"Ann <ann@shop.example>"}`, f.source("till"), generation, overlapSeconds)
}

// source names an ApiKey in a request.
func (f *fixture) source(name string) string {
	return fmt.Sprintf(`"namespace":"shops","name":%q,"uid":%q`, name, f.namespace+"/"+name)
}

// issued is the key in a 200, which no log may have.
func (f *fixture) issuedKey(got result) string {
	f.t.Helper()
	key := got.want(f.t, http.StatusOK).text("fullKey")
	f.issued = append(f.issued, key)
	return key
}

func (f *fixture) keyRecord(keyID string) published.KeyRecord {
	f.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		f.t.Fatal(err)
	}
	record, err := published.DecodeKey(f.keySecret(key.Reveal()))
	if err != nil {
		f.t.Fatal(err)
	}
	return record
}

func TestIssue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r, other := f.start(), f.start()
	for _, each := range []*replica{r, other} {
		each.proxy.FreezeWatches()
	}
	got := r.issue(id, console, strings.Replace(f.rotation(1, 0), "{", `{"x":1,`, 1))
	if names := got.header.Get("Ignored-Fields"); names != "x" {
		t.Errorf("Ignored-Fields %q, want x", names)
	}
	key := f.issuedKey(got)
	parsed, err := apikey.Parse(key)
	if err != nil || parsed.ID() != id {
		t.Errorf("the key has key id %s, want %s, %v", parsed.ID(), id, err)
	}
	want := map[string]any{"fullKey": key, "prefix": parsed.Prefix(), "keyID": id, "generation": 2.0}
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}
	for _, each := range []*replica{r, other} {
		each.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	}
	last := f.keyRecord(id).LastRotation
	if last.Cause != v1alpha1.RotationAPI || last.Actor != "Ann <ann@shop.example>" {
		t.Errorf("last rotation %+v", last)
	}
	for line := range strings.Lines(f.log.String()) { // but for the audit log, which says who it was
		if strings.Contains(line, "ann@shop.example") && !strings.Contains(line, `"logger":"audit"`) {
			t.Errorf("an e-mail address is in the log: %s", line)
		}
	}
}

// The old key of a rotation with an overlap works until the end of that, and one without ends all of them.
func TestIssue_Overlap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	console := f.issuer("console")
	replicas := []*replica{f.start(), f.start()}
	works := func(key string, want int) {
		t.Helper()
		for _, r := range replicas {
			r.call(http.MethodGet, me, key, "").want(t, want)
		}
	}
	for _, r := range replicas {
		r.proxy.FreezeWatches()
	}

	got := replicas[0].issue(parsed.ID(), console, f.rotation(1, 3600))
	second := f.issuedKey(got)
	until := time.UnixMilli(int64(got.body["previousValidUntil"].(float64)))
	if left := time.Until(until); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("the old key is valid until %s", until)
	}
	works(first, http.StatusOK)
	works(second, http.StatusOK)
	third := f.issuedKey(replicas[1].issue(parsed.ID(), console, f.rotation(2, 0)))
	works(first, http.StatusUnauthorized)
	works(second, http.StatusUnauthorized)
	works(third, http.StatusOK)
}

func TestIssue_OverlapEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	second := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), f.rotation(1, 1)))
	eventually(t, "the old key is refused", func() bool {
		return r.call(http.MethodGet, me, first, "").status == http.StatusUnauthorized
	})
	r.call(http.MethodGet, me, second, "").want(t, http.StatusOK)
}

func TestIssue_OtherGeneration(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start()
	key := f.issuedKey(r.issue(id, console, f.rotation(1, 0)))
	before := f.keyRecord(id)
	for _, expected := range []int{1, 3, 1 << 52} {
		got := r.issue(id, console, f.rotation(expected, 0))
		got.wantError(t, http.StatusConflict, fmt.Sprintf("the key has generation 2, not %d; nothing was rotated", expected))
		if got.body["generation"] != 2.0 {
			t.Errorf("generation %v, want 2", got.body["generation"])
		}
	}
	if diff := cmp.Diff(before, f.keyRecord(id)); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

// Two tabs, two people, or one form sent twice.
func TestIssue_Concurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	replicas := []*replica{f.start(), f.start()}
	const calls = 12
	answers := make([]result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() { answers[i] = replicas[i%2].issue(id, console, f.rotation(1, 3600)) })
	}
	group.Wait()
	var keys []string
	for _, got := range answers {
		if got.status == http.StatusOK {
			keys = append(keys, f.issuedKey(got))
			continue
		}
		if got.want(t, http.StatusConflict).body["generation"] != 2.0 {
			t.Errorf("a loser gets %s", got.raw)
		}
	}
	if len(keys) != 1 || f.keyRecord(id).Generation != 2 {
		t.Fatalf("%d rotations won, and the generation is %d", len(keys), f.keyRecord(id).Generation)
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, keys[0], "").want(t, http.StatusOK)
	}
}

// The audit log has a rotation before its response, and says who asked. A refused one has no entry.
func TestRotate_AuditLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	key := f.key("till", merchant)
	parsed, err := apikey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	console := f.issuer("console")
	r := f.start()
	want := audittest.Line{
		"change": "rotated", "cause": "API", "namespace": "shops", "name": "till", "merchantID": merchant.MerchantID, "keyID": parsed.ID(),
	}
	for _, row := range []struct {
		name       string
		ask        func() result
		code       int
		by         string
		generation float64
		more       audittest.Line
	}{
		{"by the holder of the key", func() result { return r.call(http.MethodPost, rotate, key, "") },
			http.StatusOK, "key", 2, audittest.Line{"address": "127.0.0.1"}},
		{"by an old key", func() result { return r.call(http.MethodPost, rotate, key, "") }, http.StatusUnauthorized, "", 0, nil},
		{"on the internal port", func() result { return r.issue(parsed.ID(), console, f.rotation(2, 0)) },
			http.StatusOK, "person", 3, audittest.Line{
				"account": "system:serviceaccount:" + f.namespace + ":console", "actor": "Ann <ann@shop.example>",
			}},
		{"of another generation", func() result { return r.issue(parsed.ID(), console, f.rotation(2, 0)) }, http.StatusConflict, "", 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := len(audittest.Lines(t, f.log.String()))
			got := row.ask().want(t, row.code)
			entries := audittest.Lines(t, f.log.String())[before:]
			if row.code != http.StatusOK {
				if len(entries) != 0 {
					t.Errorf("nothing was rotated, and there is the entry %v", entries[0])
				}
				return
			}
			f.issued = append(f.issued, got.text("fullKey"))
			if len(entries) != 1 {
				t.Fatalf("%d entries, want 1", len(entries))
			}
			expected := maps.Clone(want)
			expected["by"], expected["generation"], expected["requestID"] = row.by, row.generation, got.header.Get("X-Request-Id")
			expected["changedAt"] = f.keyRecord(parsed.ID()).LastRotation.Time.UTC().Format(time.RFC3339Nano)
			maps.Copy(expected, row.more)
			if diff := cmp.Diff(expected, entries[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIssue_Unauthorized(t *testing.T) {
	t.Parallel()
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
		r.issue(id, token, f.rotation(1, 0)).wantError(t, http.StatusUnauthorized, notAccepted)
	}
	r.report("x", console, "").wantError(t, http.StatusForbidden, notAllowed)
	if generation := f.keyRecord(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, f.rotation(1, 0)))
}

func TestIssue_UnknownKeyID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	console := f.issuer("console")
	r := f.start()
	for _, id := range []string{"aaaaaaaaaaaa", "AAAAAAAAAAAA", "a", "..", "%2e%2e%2f", "aaaaaaaaaaa1", strings.Repeat("a", 300)} {
		r.issue(id, console, f.rotation(1, 0)).want(t, http.StatusNotFound)
	}
}

// A key id is public. A request with it and with another ApiKey is that of a caller that was deceived: it gets what it gets for an
// unknown key, and nothing is rotated or counted.
func TestIssue_KeyIDOfAnotherApiKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	victim := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(victim)
	if err != nil {
		t.Fatal(err)
	}
	f.key("thief", f.merchant("thief"))
	before, console := f.keyRecord(parsed.ID()), f.issuer("console")
	r := f.start()
	uid := f.namespace + "/till"
	for name, source := range map[string]string{
		"another ApiKey":    f.source("thief"),
		"another namespace": `"namespace":"thieves","name":"till","uid":"` + uid + `"`,
		"another name":      `"namespace":"shops","name":"thief","uid":"` + uid + `"`,
		"created again":     `"namespace":"shops","name":"till","uid":"` + uid + `-2"`,
	} {
		got := r.issue(parsed.ID(), console, `{`+source+`,"expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`)
		unknown := r.issue("aaaaaaaaaaaa", console, f.rotation(1, 0))
		got.want(t, http.StatusNotFound)
		if diff := cmp.Diff(unknown.body, got.body); diff != "" || got.header.Get("RateLimit") != "" {
			t.Errorf("%s: %s %v, unlike an unknown key", name, got.raw, got.header)
		}
	}
	if diff := cmp.Diff(before, f.keyRecord(parsed.ID())); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	r.call(http.MethodGet, me, victim, "").want(t, http.StatusOK)
}

func TestIssue_BadBodies(t *testing.T) {
	t.Parallel()
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
	if generation := f.keyRecord(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, `{`+f.source("till")+`,"expectedGeneration":1e0,"overlapSeconds":31536000,"actor":"`+long(256)+`","note":"ignored"}`))
}

func long(characters int) string { return strings.Repeat("☕", characters) }

// A leaked key is disabled first, and enabled again when its holder has another.
func TestIssue_DisabledKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"), func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	parsed, err := apikey.Parse(old)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	fresh := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), f.rotation(1, 3600)))
	for _, key := range []string{old, fresh} {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	}
	if state := f.keyRecord(parsed.ID()).State; state != v1alpha1.ApiKeyDisabled {
		t.Errorf("state %s", state)
	}
}

// A key in its overlap may be in many hands. It must not keep the owner, or the console, from rotating.
func TestRotate_ReplacedKeyIsNotCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var replaced, id string
	current := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 3} }),
		func(r *published.KeyRecord) {
			id = r.KeyID
			replaced = f.newKey(id).Reveal()
			r.Previous = []published.Previous{{Digest: apikey.NewDigest(replaced), ValidUntil: time.Now().Add(time.Hour).UTC()}}
		})
	console := f.issuer("console")
	r := f.start()
	r.call(http.MethodGet, me, replaced, "").want(t, http.StatusOK)
	for range 110 {
		got := r.call(http.MethodPost, rotate, replaced, "").want(t, http.StatusUnauthorized)
		if got.header.Get("RateLimit") != "" {
			t.Fatalf("the 401 has %v", got.header)
		}
	}
	r.call(http.MethodGet, me, current, "").want(t, http.StatusOK) // the merchant's own limit
	f.rotated(r, current)
	f.issuedKey(r.issue(id, console, f.rotation(2, 0)))
}

// A merchant's program that rotates without end leaves the console its rotations, and the other way round.
func TestRotate_LimitOfEachListener(t *testing.T) {
	t.Parallel()
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
			t.Errorf("the 429 has %v", got.header)
		}
		return true
	}
	// useUp rotates until the limit, and returns how many passed: on a busy machine some come back meanwhile.
	useUp := func(rotate func() result) (passed int) {
		t.Helper()
		for ; passed < 500; passed++ {
			got := rotate()
			if limited(got) {
				return passed
			}
			key = f.issuedKey(got)
		}
		t.Fatal("there is no limit")
		return passed
	}
	generation := 0
	passed := useUp(func() result {
		generation++
		r.issue(parsed.ID(), console, f.rotation(generation+1, 0)).want(t, http.StatusConflict) // rotates nothing, so it is not counted
		return r.issue(parsed.ID(), console, f.rotation(generation, 0))
	})
	if passed < 100 {
		t.Errorf("the console has rotated %d times, want 100", passed)
	}
	if passed := useUp(func() result { return r.call(http.MethodPost, rotate, key, "") }); passed < 100 {
		t.Errorf("the merchant has rotated %d times, want 100", passed)
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

// A caller with the right asks without end for what rotates nothing. The Kubernetes API is read a bounded number of times, each request has the
// right answer, and the owner rotates meanwhile.
func TestIssue_LoopOfRefusedRequests(t *testing.T) {
	t.Parallel()
	const clients, each = 16, 60
	for name, row := range map[string]struct {
		ask  func(f *fixture, till string, n int) (keyID, body string)
		want int
	}{
		"wrong generations": {
			func(f *fixture, till string, n int) (string, string) { return till, f.rotation(1000+n, 0) }, http.StatusConflict,
		},
		"another ApiKey": {
			func(f *fixture, till string, _ int) (string, string) {
				return till, `{` + f.source("thief") + `,"expectedGeneration":1,"overlapSeconds":0,"actor":"a"}`
			}, http.StatusNotFound,
		},
		"unknown key ids": {
			func(f *fixture, _ string, n int) (string, string) {
				return published.ID(types.UID(fmt.Sprint(n))), f.rotation(1, 0)
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
				f.issuedKey(r.issue(till, console, f.rotation(generation+1, 0)))
			}
			loop.Wait()
			f.issuedKey(r.issue(till, console, f.rotation(rotations+1, 0)))
			seconds := int64(time.Since(began)/time.Second) + 1
			// The burst, ten reads of their own and ten shared ones a second, and two for each rotation.
			if got, most := reads.Load(), 100+20*seconds+2*(rotations+1); got > most {
				t.Errorf("%d requests cost %d reads in %d s, want at most %d", clients*each, got, seconds, most)
			}
		})
	}
}

func TestIssue_PlainHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.InternalAddress = ":0" })
	r.issue(id, console, f.rotation(1, 0)).wantError(t, http.StatusForbidden,
		"API keys and signing secrets are issued over TLS only; start the API with --internal-cert-dir")
	r.report("x", rail, "").want(t, http.StatusNotFound) // a settlement has no secret
	if generation := f.keyRecord(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestIssue_TLS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	dir := t.TempDir()
	authority := certificate(t, dir)
	r := f.start(func(o *apiserver.Options) { o.InternalAddress, o.InternalCertificateDir = ":0", dir })
	r.internal = strings.Replace(r.internal, "http://[::]", "https://127.0.0.1", 1)
	trusting := func(authority *x509.CertPool) *http.Client {
		return &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority}}}
	}
	client := trusting(authority)
	f.issuedKey(r.with(client).issue(id, console, f.rotation(1, 0)))
	r.with(client).report("x", rail, "").want(t, http.StatusNotFound)

	authority = certificate(t, dir) // renewed, by another authority
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.internal+issuePath(id), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := trusting(x509.NewCertPool()).Do(request); err == nil {
		_ = response.Body.Close()
		t.Error("an unknown authority is trusted")
	}
	f.issuedKey(r.with(trusting(authority)).issue(id, console, f.rotation(2, 0)))
}

// with is the replica, seen by another client.
func (r *replica) with(client *http.Client) *replica {
	seen := *r
	seen.client = client
	return &seen
}

// certificate writes a certificate for the loopback address and its key, and returns who can verify it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "internal"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

const rotationUnknown = "unknown whether the key was rotated; send the same request again"

// The rotation is done, but not every replica knows: nobody gets the key, and the same request says what is in force.
func TestIssue_RedisDownAfterSwap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	own := redistest.Start(t)
	away := true
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if away {
			own.Stop()
		}
		return next.RoundTrip(r)
	})
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	got := r.issue(id, console, f.rotation(1, 0))
	got.wantError(t, http.StatusServiceUnavailable, rotationUnknown)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	away = false
	own.Start()
	eventually(t, "the same request says what is in force", func() bool {
		got := r.issue(id, console, f.rotation(1, 0))
		return got.status == http.StatusConflict && got.body["generation"] == 2.0
	})
	key := f.issuedKey(r.issue(id, console, f.rotation(2, 0)))
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestIssue_RedisDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	own.Stop()
	r.issue(id, console, f.rotation(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	if generation := f.keyRecord(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestIssue_KubernetesDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	r.issue(id, console, f.rotation(9, 0)).want(t, http.StatusConflict) // the caller is known from now on
	r.proxy.Cut()
	r.issue(id, console, f.rotation(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	r.proxy.Restore()
	f.issuedKey(r.issue(id, console, f.rotation(1, 0)))
}
