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
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// rotationPath is what an issuer's ClusterRole names, as docs/rotation-api.md says.
const rotationPath = "/internal/v1/keys/{keyID}/rotate"

// issuer makes a service account that may issue keys and returns a token of it.
func (f *fixture) issuer(name string) string {
	f.t.Helper()
	token := f.account(name)
	f.allow(name, rotationPath, rotationPath)
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

// of is a request to rotate a generation.
func of(generation, overlapSeconds int) string {
	return fmt.Sprintf(`{"expectedGeneration":%d,"overlapSeconds":%d,"actor":"Ann <ann@shop.example>"}`, generation, overlapSeconds)
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
	got := r.issue(id, console, of(1, 0))
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
	if strings.Contains(f.log.String(), "ann@shop.example") {
		t.Error("an e-mail address is in the log")
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

	got := replicas[0].issue(parsed.ID(), console, of(1, 3600))
	second := f.issuedKey(got)
	until := time.UnixMilli(int64(got.body["previousValidUntil"].(float64)))
	if left := time.Until(until); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("the old key is valid until %s", until)
	}
	works(first, http.StatusOK)
	works(second, http.StatusOK)
	third := f.issuedKey(replicas[1].issue(parsed.ID(), console, of(2, 0)))
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
	second := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), of(1, 1)))
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
	key := f.issuedKey(r.issue(id, console, of(1, 0)))
	before := f.recordOf(id)
	for _, expected := range []int{1, 3, 1 << 52} {
		got := r.issue(id, console, of(expected, 0))
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
		group.Go(func() { answers[i] = replicas[i%2].issue(id, console, of(1, 3600)) })
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
		r.issue(id, token, of(1, 0)).wantError(t, http.StatusUnauthorized, notAccepted)
	}
	r.report("x", console, "").wantError(t, http.StatusForbidden, notAllowed)
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, of(1, 0)))
}

func TestKeysThatCannotBeIssued(t *testing.T) {
	f := newFixture(t)
	console := f.issuer("console")
	r := f.start()
	for _, id := range []string{"aaaaaaaaaaaa", "AAAAAAAAAAAA", "a", "..", "%2e%2e%2f", "aaaaaaaaaaa1", strings.Repeat("a", 300)} {
		r.issue(id, console, of(1, 0)).want(t, http.StatusNotFound)
	}
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
	)
	for body, want := range map[string]string{
		``:                                 "body must be one JSON object",
		`[]`:                               "body must be one JSON object",
		`{"overlapSeconds":0,"actor":"a"}`: generation,
		`{"expectedGeneration":0,"overlapSeconds":0,"actor":"a"}`:                        generation,
		`{"expectedGeneration":-1,"overlapSeconds":0,"actor":"a"}`:                       generation,
		`{"expectedGeneration":1.5,"overlapSeconds":0,"actor":"a"}`:                      generation,
		`{"expectedGeneration":"1","overlapSeconds":0,"actor":"a"}`:                      generation,
		`{"expectedGeneration":null,"overlapSeconds":0,"actor":"a"}`:                     generation,
		`{"expectedGeneration":1,"actor":"a"}`:                                           overlap,
		`{"expectedGeneration":1,"overlapSeconds":-1,"actor":"a"}`:                       overlap,
		`{"expectedGeneration":1,"overlapSeconds":31536001,"actor":"a"}`:                 overlap,
		`{"expectedGeneration":1,"overlapSeconds":0}`:                                    actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":""}`:                         actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":" "}`:                        actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":7}`:                          actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\nb"}`:                     actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\u202eb"}`:                 actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"a\u200bb"}`:                 actor,
		`{"expectedGeneration":1,"overlapSeconds":0,"actor":"` + long(257) + `"}`:        actor,
		`{"expectedGeneration":1,"expectedGeneration":2,"overlapSeconds":0,"actor":"a"}`: `duplicate field "expectedGeneration"`,
	} {
		got := r.issue(id, console, body)
		if got.status != http.StatusBadRequest || got.body["error"] != want {
			t.Errorf("%s gets %d %s, want 400 %s", body, got.status, got.raw, want)
		}
	}
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
	f.issuedKey(r.issue(id, console, `{"expectedGeneration":1e0,"overlapSeconds":31536000,"actor":"`+long(256)+`","note":"ignored"}`))
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
	fresh := f.issuedKey(r.issue(parsed.ID(), f.issuer("console"), of(1, 3600)))
	for _, key := range []string{old, fresh} {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	}
	if state := f.recordOf(parsed.ID()).State; state != v1alpha1.ApiKeyDisabled {
		t.Errorf("state %s", state)
	}
}

func TestBothListenersShareTheLimitOfRotations(t *testing.T) {
	f := newFixture(t)
	old := f.key("till", f.merchant("acme"))
	parsed, err := apikey.Parse(old)
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
	eventually(t, "the limit is reached", func() bool {
		return limited(r.issue(parsed.ID(), console, of(7, 0))) // each counts, whatever comes of it
	})
	eventually(t, "the limit is that of the merchant's rotations too", func() bool {
		r.issue(parsed.ID(), console, of(7, 0))
		return limited(r.call(http.MethodPost, rotate, old, "")) || f.recordOf(parsed.ID()).Generation > 1
	})
	if generation := f.recordOf(parsed.ID()).Generation; generation != 1 {
		t.Error("the merchant's rotation passed")
	}
}

const rotationUnknown = "unknown whether the key was rotated; send the same request again"

// The rotation is done, but not every replica knows: nobody gets the key, and the same request says what is in force.
func TestNoKeyIsShownIfRedisIsAwayAfterTheSwap(t *testing.T) {
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
	got := r.issue(id, console, of(1, 0))
	got.wantError(t, http.StatusServiceUnavailable, rotationUnknown)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	away = false
	own.Start()
	eventually(t, "the same request says what is in force", func() bool {
		got := r.issue(id, console, of(1, 0))
		return got.status == http.StatusConflict && got.body["generation"] == 2.0
	})
	key := f.issuedKey(r.issue(id, console, of(2, 0)))
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestNothingIsRotatedWithoutRedis(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	own.Stop()
	r.issue(id, console, of(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestNothingIsRotatedWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	r.issue(id, console, of(9, 0)).want(t, http.StatusConflict) // the caller is known from now on
	r.proxy.Cut()
	r.issue(id, console, of(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	r.proxy.Mend()
	f.issuedKey(r.issue(id, console, of(1, 0)))
}

func TestKeysAreNotIssuedOverPlainHTTP(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.InternalAddress = ":0" })
	r.issue(id, console, of(1, 0)).wantError(t, http.StatusForbidden,
		"API keys are issued over TLS only; start the API with --internal-cert-dir")
	r.report("x", rail, "").want(t, http.StatusNotFound) // a settlement has no secret
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestKeysAreIssuedOverTLS(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console, rail := f.issuer("console"), f.rail("bank")
	dir := t.TempDir()
	authority := certificate(t, dir)
	r := f.start(func(o *apiserver.Options) { o.InternalAddress, o.InternalCertificateDir = ":0", dir })
	r.internal = strings.Replace(r.internal, "http://[::]", "https://127.0.0.1", 1)
	trusting := func(authority *x509.CertPool) *http.Client {
		return &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority}}}
	}
	client := trusting(authority)
	f.issuedKey(r.with(client).issue(id, console, of(1, 0)))
	r.with(client).report("x", rail, "").want(t, http.StatusNotFound)

	authority = certificate(t, dir) // renewed, by another authority
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.internal+rotationOf(id), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := trusting(x509.NewCertPool()).Do(request); err == nil {
		_ = response.Body.Close()
		t.Error("an unknown authority is trusted")
	}
	f.issuedKey(r.with(trusting(authority)).issue(id, console, of(2, 0)))
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

func TestAMissingCertificateStopsTheStart(t *testing.T) {
	f := newFixture(t)
	r := f.launch(func(o *apiserver.Options) { o.InternalCertificateDir = t.TempDir() })
	select {
	case err := <-r.ended:
		if err == nil || !strings.Contains(err.Error(), "--internal-cert-dir") {
			t.Errorf("Run ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on")
	}
}
