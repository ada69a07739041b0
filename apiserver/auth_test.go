package apiserver_test

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const me = "/api/v1/merchant/me"

// trustLoopback lets a test choose its address by X-Forwarded-For.
func trustLoopback(o *apiserver.Options) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// Whatever is wrong with a key or its caller, the answer is the same to the byte.
func TestEvery401IsTheSame(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	suspended := f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended })
	good := f.key("good", acme)
	stale := f.newKey(published.ID("previous of rotated")).Reveal()
	expired := f.key("expired", acme, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Second)) })
	disabled := f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	f.key("rotated", acme, func(r *published.KeyRecord) {
		r.Previous = []published.Previous{{Digest: apikey.DigestOf(stale), ValidUntil: time.Now().Add(-time.Second)}}
	})
	orphan := f.key("orphan", published.MerchantRecord{MerchantID: published.ID("nobody")})
	undecodable := f.key("undecodable", acme)
	secret := f.secretOf(undecodable)
	secret.Data["record.json"] = []byte("{")
	f.updateSecret(secret)
	ofSuspended := f.key("of-suspended", suspended)
	r := f.start(trustLoopback)

	id := func(key string) string {
		parsed, err := apikey.Parse(key)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.ID()
	}
	const home, foreign = "203.0.113.7", "198.51.100.7"
	request := func(address string, authorization ...string) http.Header {
		return http.Header{"X-Forwarded-For": {address}, "Authorization": authorization}
	}
	bearer := func(key string) http.Header { return request(home, "Bearer "+key) }
	causes := map[string]http.Header{
		"no Authorization":                       request(home),
		"empty":                                  request(home, ""),
		"another scheme":                         request(home, "Basic "+good),
		"the key alone":                          request(home, good),
		"the scheme alone":                       request(home, "Bearer"),
		"two keys":                               request(home, "Bearer "+good+" "+good),
		"two keys with a comma":                  request(home, "Bearer "+good+", Bearer "+good),
		"the header twice":                       request(home, "Bearer "+good, "Bearer "+good),
		"the header twice, one of them bad":      request(home, "Bearer "+good, "Bearer x"),
		"too short for a key":                    bearer("hunter2"),
		"too long for a key":                     bearer(strings.Repeat("k", 257)),
		"an umlaut":                              bearer(good[:58] + "ä"),
		"an unknown key":                         bearer(f.newKey(published.ID("unknown")).Reveal()),
		"an unknown key made elsewhere":          bearer(strings.Repeat("k", 40)),
		"a mistyped key":                         bearer(good[:30] + flip(good[30]) + good[31:]),
		"a key in other case":                    bearer(strings.ToUpper(good)),
		"a key never issued, of a good key's id": bearer(f.newKey(id(good)).Reveal()),
		"a digest for a key":                     bearer(apikey.DigestOf(good).Hex()),
		"an expired key":                         bearer(expired),
		"a disabled key":                         bearer(disabled),
		"a key past its overlap":                 bearer(stale),
		"a key whose merchant is unknown":        bearer(orphan),
		"a key whose record is broken":           bearer(undecodable),
		"a dead key of a suspended merchant":     bearer(f.newKey(id(ofSuspended)).Reveal()),
		"a good key from elsewhere":              request(foreign, "Bearer "+good),
		"a good key from a forged address":       request(home+", "+foreign, "Bearer "+good),
		"a good key from a malformed address":    request("nonsense", "Bearer "+good),
		"a good key from no address":             request("", "Bearer "+good),
		"a good key from an IPv6 address":        request("2001:db8::7", "Bearer "+good),
	}

	for _, route := range []struct{ method, path, body string }{
		{http.MethodGet, me, ""},
		{http.MethodPost, sessions, `{"amountCents": 1}`},
		{http.MethodPost, sessions, `{"amountCents": "bad"}`},
		{http.MethodPost, sessions, `{"amountCents": 1, "unknown": 1}`},
		{http.MethodGet, sessions + "/ps_aaaaaaaaaaaa00000000000000000000", ""},
		{http.MethodGet, sessions + "/malformed", ""},
		{http.MethodPost, rotate, ""},
		{http.MethodPost, sessions, strings.Repeat(" ", 200_000)},
		{http.MethodPost, sessions, strings.Repeat(" ", 256<<10+1)}, // more than net/http reads to keep a connection
	} {
		var first *result
		for cause, header := range causes {
			request, err := http.NewRequestWithContext(t.Context(), route.method, r.url+route.path, strings.NewReader(route.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = header
			got := r.send(request).want(t, http.StatusUnauthorized)
			got.header.Del("Date")
			got.header.Del("X-Request-Id") // of this request alone
			if first == nil {
				first = &got
			}
			if diff := cmp.Diff(*first, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("%s %s, %s: not the same answer:\n%s", route.method, route.path, cause, diff)
			}
			if got.header.Get("WWW-Authenticate") != "Bearer" || got.header.Get("RateLimit") != "" ||
				got.header.Get("Error-Code") != "" || got.header.Get("Ignored-Fields") != "" {
				t.Errorf("headers %v", got.header)
			}
		}
	}
	r.call(http.MethodGet, me, good, "", "X-Forwarded-For", home).want(t, http.StatusOK)
}

// Operators see why a key was refused: each reason of the closed list in the metric, and in the log if they ask for it.
func TestUnauthorized_Reasons(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	good := f.key("good", acme)
	claimed := strings.Repeat("c", 40)
	claim := func(issued time.Time) func(*published.KeyRecord) {
		digest := apikey.DigestOf(claimed)
		return func(r *published.KeyRecord) {
			r.Current, r.HandledDigest = published.Current{Digest: digest, CreatedAt: issued}, &digest
		}
	}
	holder := f.key("holder", acme, claim(time.Now().Add(-time.Hour).UTC()))
	f.key("second", acme, claim(time.Now().UTC()))
	expired := f.key("expired", acme, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Second)) })
	disabled := f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	// The operator disables the keys of a Merchant that was deleted.
	orphan := f.key("orphan", published.MerchantRecord{MerchantID: published.ID("nobody")},
		func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	wrong := f.key("wrong", acme, func(r *published.KeyRecord) { r.Test = true }) // a live key, published as a test key
	log := &logtest.Buffer{}
	r := f.start(trustLoopback, func(o *apiserver.Options) {
		o.LogRefusedKeys = true
		o.Log = slog.New(fanOut{o.Log.Handler(), slog.NewJSONHandler(log, nil)})
	})
	const home, foreign = "203.0.113.7", "198.51.100.7"
	r.call(http.MethodGet, me, claimed, "", "X-Forwarded-For", home).want(t, http.StatusOK)
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.secretOf(holder).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, patience, "the holder of the claim is gone", func() bool {
		return r.call(http.MethodGet, me, claimed, "", "X-Forwarded-For", home).status == http.StatusUnauthorized
	})

	keyID := func(key string) string { return key[8:20] }
	for reason, test := range map[string]struct{ presented, address, keyID string }{
		"missing":             {"", home, ""},
		"malformed":           {good[:30] + flip(good[30]) + good[31:], home, ""},
		"unknown":             {f.newKey(published.ID("unknown")).Reveal(), home, published.ID("unknown")},
		"rotated":             {f.newKey(keyID(good)).Reveal(), home, keyID(good)},
		"expired":             {expired, home, keyID(expired)},
		"disabled":            {disabled, home, keyID(disabled)},
		"merchant_missing":    {orphan, home, keyID(orphan)},
		"address_not_allowed": {good, foreign, keyID(good)},
		"digest_claimed":      {claimed, home, ""},
		"wrong_mode":          {wrong, home, keyID(wrong)},
	} {
		name := `merchant_operator_http_unauthorized_total{reason="` + reason + `"}`
		before, err := strconv.Atoi(r.metric(name))
		if err != nil {
			t.Errorf("%s is not exposed: %v", name, err)
			continue
		}
		r.call(http.MethodGet, me, test.presented, "", "X-Forwarded-For", test.address).want(t, http.StatusUnauthorized)
		if after := r.metric(name); after != strconv.Itoa(before+1) {
			t.Errorf("%s was %d and is %s, want one more", name, before, after)
		}
		if test.presented == "" || reason == "malformed" || reason == "digest_claimed" {
			continue // several have no key id; only the first of them in a second is logged
		}
		line := `"msg":"refused API key","reason":"` + reason + `","keyID":"` + test.keyID + `","clientAddress":"` + test.address + `"`
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log does not hold %s:\n%s", line, log)
		}
	}
	for _, secret := range f.issued {
		if strings.Contains(log.String(), secret) {
			t.Error("the log holds a key")
		}
	}
}

// flip returns another base62 digit.
func flip(digit byte) string {
	if digit == 'a' {
		return "b"
	}
	return "a"
}

func TestAuthorizationIsReadAsRFC6750Says(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, value := range []string{"Bearer " + key, "bearer " + key, "BEARER  " + key, "Bearer " + key + " "} {
		r.call(http.MethodGet, me, "", "", "Authorization", value).want(t, http.StatusOK)
	}
}

func TestAKeyMadeElsewhereIsGood(t *testing.T) {
	f := newFixture(t)
	elsewhere := "made-elsewhere!" + strings.Repeat("~", 241)
	f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.DigestOf(elsewhere), CreatedAt: time.Now().UTC()}
	})
	got := f.start().call(http.MethodGet, me, elsewhere, "").want(t, http.StatusOK)
	if prefix := got.body["apiKey"].(map[string]any)["prefix"]; prefix != "" {
		t.Errorf("prefix %q, want none", prefix)
	}
}

func TestAllowlist(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "198.51.100.7", "2001:db8:1::/48"}
	}))
	anyone := f.key("anyone", f.merchant("open"))
	r := f.start(trustLoopback)
	for address, want := range map[string]int{
		"203.0.113.255":            http.StatusOK,
		"203.0.114.0":              http.StatusUnauthorized,
		"198.51.100.7":             http.StatusOK,
		"198.51.100.8":             http.StatusUnauthorized,
		"2001:db8:1:2::3":          http.StatusOK,
		"2001:db8:2::":             http.StatusUnauthorized,
		"::ffff:203.0.113.1":       http.StatusOK,
		"10.0.0.1":                 http.StatusUnauthorized,
		"203.0.113.9, 127.0.0.9":   http.StatusOK,
		"203.0.113.9, 10.0.0.1":    http.StatusUnauthorized,
		"10.0.0.1, 203.0.113.9":    http.StatusOK,
		"203.0.113.9, nonsense":    http.StatusUnauthorized,
		"nonsense, 203.0.113.9":    http.StatusOK,
		"203.0.113.9:4711":         http.StatusOK,
		"[2001:db8:1::1]:4711":     http.StatusOK,
		"fe80::1%eth0":             http.StatusUnauthorized,
		"203.0.113.9%eth0":         http.StatusUnauthorized,
		"203.0.113.9, , 127.0.0.1": http.StatusUnauthorized,
	} {
		if got := r.call(http.MethodGet, me, key, "", "X-Forwarded-For", address); got.status != want {
			t.Errorf("from %s: %d, want %d", address, got.status, want)
		}
	}
	r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "203.0.113.9", "X-Forwarded-For", "10.0.0.1").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "10.0.0.1", "X-Forwarded-For", "203.0.113.9").want(t, http.StatusOK)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized) // the proxy itself is not on the list
	r.call(http.MethodGet, me, anyone, "", "X-Forwarded-For", "10.0.0.1").want(t, http.StatusOK)
}

func TestForwardedForIsNotBelievedFromStrangers(t *testing.T) {
	f := newFixture(t)
	local := f.key("local", f.merchant("local", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1"} }))
	remote := f.key("remote", f.merchant("remote", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} }))
	r := f.start() // trusts nobody
	r.call(http.MethodGet, me, remote, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, local, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
	r.call(http.MethodGet, me, local, "", "X-Forwarded-For", "nonsense").want(t, http.StatusOK)
}
