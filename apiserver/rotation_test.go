package apiserver_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/audittest"
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
	return r.internally(http.MethodPost, rotationOf(keyID), token, body, headers...)
}

func rotationOf(keyID string) string { return "/internal/v1/keys/" + keyID + "/rotate" }

// of is a request to rotate a generation of the ApiKey till.
func (f *fixture) of(generation, overlapSeconds int) string {
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

func (f *fixture) recordOf(keyID string) published.KeyRecord {
	f.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		f.t.Fatal(err)
	}
	record, err := published.DecodeKey(f.secretOf(key.Reveal()))
	if err != nil {
		f.t.Fatal(err)
	}
	return record
}

func TestAKeyIsIssuedToWhoMayRotateIt(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r, other := f.start(), f.start()
	for _, each := range []*replica{r, other} {
		each.proxy.FreezeWatches()
	}
	got := r.issue(id, console, f.of(1, 0))
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
	last := f.recordOf(id).LastRotation
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
func TestTheOverlapOfARotation(t *testing.T) {
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

	got := replicas[0].issue(parsed.ID(), console, f.of(1, 3600))
	second := f.issuedKey(got)
	until := time.UnixMilli(int64(got.body["previousValidUntil"].(float64)))
	if left := time.Until(until); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("the old key is valid until %s", until)
	}
	works(first, http.StatusOK)
	works(second, http.StatusOK)
	third := f.issuedKey(replicas[1].issue(parsed.ID(), console, f.of(2, 0)))
	works(first, http.StatusUnauthorized)
	works(second, http.StatusUnauthorized)
	works(third, http.StatusOK)
}

func TestTheOverlapOfARotationEnds(t *testing.T) {
	f := newFixture(t)
	first := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	second := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), f.of(1, 1)))
	eventually(t, "the old key is refused", func() bool {
		return r.call(http.MethodGet, me, first, "").status == http.StatusUnauthorized
	})
	r.call(http.MethodGet, me, second, "").want(t, http.StatusOK)
}

func TestARotationOfAnotherGenerationRotatesNothing(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start()
	key := f.issuedKey(r.issue(id, console, f.of(1, 0)))
	before := f.recordOf(id)
	for _, expected := range []int{1, 3, 1 << 52} {
		got := r.issue(id, console, f.of(expected, 0))
		got.wantError(t, http.StatusConflict, fmt.Sprintf("the key has generation 2, not %d; nothing was rotated", expected))
		if got.body["generation"] != 2.0 {
			t.Errorf("generation %v, want 2", got.body["generation"])
		}
	}
	if diff := cmp.Diff(before, f.recordOf(id)); diff != "" {
		t.Errorf("the record has changed:\n%s", diff)
	}
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

// Two tabs, two people, or one form sent twice.
func TestOfManyRotationsOfOneGenerationOneWins(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	replicas := []*replica{f.start(), f.start()}
	const calls = 12
	answers := make([]result, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() { answers[i] = replicas[i%2].issue(id, console, f.of(1, 3600)) })
	}
	group.Wait()
	var keys []string
	for _, got := range answers {
		if got.status == http.StatusOK {
			keys = append(keys, f.issuedKey(got))
			continue
		}
		if got.want(t, http.StatusConflict).body["generation"] != 2.0 {
			t.Errorf("a loser reads %s", got.raw)
		}
	}
	if len(keys) != 1 || f.recordOf(id).Generation != 2 {
		t.Fatalf("%d rotations won, and the generation is %d", len(keys), f.recordOf(id).Generation)
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, keys[0], "").want(t, http.StatusOK)
	}
}

// The line of a rotation is there before its answer, and says who asked; who was refused has none.
func TestRotate_AuditLine(t *testing.T) {
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
		{"on the internal port", func() result { return r.issue(parsed.ID(), console, f.of(2, 0)) },
			http.StatusOK, "person", 3, audittest.Line{
				"account": "system:serviceaccount:" + f.namespace + ":console", "actor": "Ann <ann@shop.example>",
			}},
		{"of another generation", func() result { return r.issue(parsed.ID(), console, f.of(2, 0)) }, http.StatusConflict, "", 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := len(audittest.Lines(t, f.log.String()))
			got := row.ask().want(t, row.code)
			lines := audittest.Lines(t, f.log.String())[before:]
			if row.code != http.StatusOK {
				if len(lines) != 0 {
					t.Errorf("nothing was rotated, and there is the line %v", lines[0])
				}
				return
			}
			f.issued = append(f.issued, got.text("fullKey"))
			if len(lines) != 1 {
				t.Fatalf("%d lines, want 1", len(lines))
			}
			expected := maps.Clone(want)
			expected["by"], expected["generation"], expected["requestID"] = row.by, row.generation, got.header.Get("X-Request-Id")
			expected["changedAt"] = f.recordOf(parsed.ID()).LastRotation.Time.UTC().Format(time.RFC3339Nano)
			maps.Copy(expected, row.more)
			if diff := cmp.Diff(expected, lines[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
