package apiserver_test

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const me = "/api/v1/merchant/me"

// trustLoopback lets a test choose its address by X-Forwarded-For.
func trustLoopback(o *apiserver.Options) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// Whatever is wrong with a key or its caller, the answer is the same to the byte.
func TestUnauthorized_AnswersAreEqual(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	suspended := f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended })
	good := f.key("good", acme)
	stale := f.newKey(published.ID("previous of rotated")).Reveal()
	expired := f.key("expired", acme, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Second)) })
	disabled := f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	f.key("rotated", acme, func(r *published.KeyRecord) {
		r.Previous = []published.Previous{{Digest: apikey.NewDigest(stale), ValidUntil: time.Now().Add(-time.Second)}}
	})
	orphan := f.key("orphan", published.MerchantRecord{MerchantID: published.ID("nobody")})
	undecodable := f.key("undecodable", acme)
	secret := f.keySecret(undecodable)
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
		"a digest for a key":                     bearer(apikey.NewDigest(good).Hex()),
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
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	good := f.key("good", acme)
	claimed := strings.Repeat("c", 40)
	claim := func(issued time.Time) func(*published.KeyRecord) {
		digest := apikey.NewDigest(claimed)
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
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.keySecret(holder).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the holder of the claim is gone", func() bool {
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
		entry := `"msg":"refused API key","reason":"` + reason + `","keyID":"` + test.keyID + `","clientAddress":"` + test.address + `"`
		if !strings.Contains(log.String(), entry) {
			t.Errorf("the log does not hold %s:\n%s", entry, log)
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

func TestAuthorization_RFC6750(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, value := range []string{"Bearer " + key, "bearer " + key, "BEARER  " + key, "Bearer " + key + " "} {
		r.call(http.MethodGet, me, "", "", "Authorization", value).want(t, http.StatusOK)
	}
}

func TestKeyMadeElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	elsewhere := "made-elsewhere!" + strings.Repeat("~", 241)
	f.key("till", f.merchant("acme"), func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.NewDigest(elsewhere), CreatedAt: time.Now().UTC()}
	})
	got := f.start().call(http.MethodGet, me, elsewhere, "").want(t, http.StatusOK)
	if prefix := got.body["apiKey"].(map[string]any)["prefix"]; prefix != "" {
		t.Errorf("prefix %q, want none", prefix)
	}
}

func TestAllowlist(t *testing.T) {
	t.Parallel()
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

func TestForwardedFor_UntrustedPeer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	local := f.key("local", f.merchant("local", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1"} }))
	remote := f.key("remote", f.merchant("remote", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} }))
	r := f.start() // trusts nobody
	r.call(http.MethodGet, me, remote, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, local, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
	r.call(http.MethodGet, me, local, "", "X-Forwarded-For", "nonsense").want(t, http.StatusOK)
}

// One client presents only wrong keys, as fast as it can, and shares its address with a till. The till notices nothing,
// and the wrong keys cost Redis a bounded number of scripts.
func TestWrongKeys_BesideATill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	r.awaitChecked()
	server := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer func() { _ = server.Close() }()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // the server learns the script

	var wrong []string
	for range 20 {
		wrong = append(wrong, f.newKey(key[8:20]).Reveal(), f.newKey(published.ID("nobody")).Reveal(), strings.Repeat("w", 40))
	}
	for range 150 { // the server learns the others
		r.call(http.MethodGet, me, wrong[0], "").want(t, http.StatusUnauthorized)
	}
	if err := server.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const clients, each = 16, 100
	var flood sync.WaitGroup
	for client := range clients {
		flood.Go(func() {
			for n := range each {
				r.call(http.MethodGet, me, wrong[(client+n)%len(wrong)], "").want(t, http.StatusUnauthorized)
			}
		})
	}
	const good = 200
	for range good {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	}
	flood.Wait()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)

	stats, err := server.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	// A third of the wrong keys name a known key id. Ten of them a second are asked about, and what is under way together; all
	// others share ten reads a second.
	seconds := int(time.Since(began)/time.Second) + 1
	if trips, most := sent(t, stats)-(good+1), 20*seconds+2*clients; trips > most {
		t.Errorf("%d trips to Redis for wrong keys in %d s, want at most %d", trips, seconds, most)
	}
}

// A key that another replica has just made is good, though the replica that is asked knows nothing of it yet and is flooded with
// wrong keys of the same key id.
func TestWrongKeys_BesideAFreshKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	frozen, other := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	wrong := f.newKey(key[8:20]).Reveal()
	for range 150 {
		frozen.call(http.MethodGet, me, wrong, "").want(t, http.StatusUnauthorized)
	}
	fresh := f.rotated(other, key)
	frozen.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	frozen.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	frozen.call(http.MethodGet, me, wrong, "").want(t, http.StatusUnauthorized)
	frozen.call(http.MethodPost, sessions, fresh, `{"amountCents": 1}`).want(t, http.StatusCreated)
}

// Connections that stay open bring requests to a replica that is not ready. One whose watch is older than overrides are kept may have
// missed a revocation, so it accepts no key.
func TestGate_StaleWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	var ahead atomic.Int64
	r := f.start(func(o *apiserver.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	r.proxy.FreezeWatches()
	ahead.Store(int64(keystate.OverrideLifetime - time.Hour))
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	eventually(t, "no bookmark is on its way", func() bool {
		ahead.Add(int64(keystate.OverrideLifetime))
		return r.call(http.MethodGet, me, key, "").status == http.StatusServiceUnavailable
	})
	for _, presented := range []string{key, ""} {
		got := r.call(http.MethodGet, me, presented, "")
		got.wantError(t, http.StatusServiceUnavailable, unavailable)
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if status := getStatus(r.ops + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d", status)
	}
}

// An allowlist that reports only changes no answer: not that of a bad key either.
func TestAllowlist_ReportMode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist, r.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	good := f.key("good", acme)
	disabled := f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	r := f.start(trustLoopback)
	for _, address := range []string{"203.0.113.7", "198.51.100.7", "2001:db8::7"} {
		r.call(http.MethodGet, me, good, "", "X-Forwarded-For", address).want(t, http.StatusOK)
		r.call(http.MethodPost, sessions, good, `{"amountCents": 1}`, "X-Forwarded-For", address).want(t, http.StatusCreated)
		r.call(http.MethodGet, me, disabled, "", "X-Forwarded-For", address).want(t, http.StatusUnauthorized)
	}
	acme.IPAllowlistMode = v1alpha1.IPAllowlistEnforce
	f.changeMerchant(acme)
	eventually(t, "the list is enforced", func() bool {
		return r.call(http.MethodGet, me, good, "", "X-Forwarded-For", "198.51.100.7").status == http.StatusUnauthorized
	})
	r.call(http.MethodGet, me, good, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
}

// Replicas add up what they count. A bad key is not counted, and nobody who is refused sees a difference.
func TestBlockedAddresses_ReplicasAdd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	enforced := f.merchant("enforced", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	reporting := f.merchant("reporting", func(r *published.MerchantRecord) {
		r.IPAllowlist, r.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	keys := map[string]int{f.key("enforced", enforced): http.StatusUnauthorized, f.key("reporting", reporting): http.StatusOK}
	disabled := f.key("disabled", reporting, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	for range 2 {
		r := f.start(trustLoopback)
		for key, want := range keys {
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "198.51.100.7").want(t, want)
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "2001:db8:1::7").want(t, want)
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
		}
		unknown := r.call(http.MethodGet, me, disabled, "", "X-Forwarded-For", "192.0.2.7").want(t, http.StatusUnauthorized)
		if refused := r.call(http.MethodGet, me, f.newKey(published.ID("unknown")).Reveal(), "").want(t, http.StatusUnauthorized); !bytes.Equal(unknown.raw, refused.raw) {
			t.Errorf("%s and %s", unknown.raw, refused.raw)
		}
	}
	kept := blocked.New(storetest.Client(t, sharedRedis.URL()))
	for _, merchant := range []published.MerchantRecord{enforced, reporting} {
		eventually(t, "both replicas have written what they counted for "+merchant.Name, func() bool {
			all, _, err := kept.List(t.Context(), session.MerchantBucket(merchant.MerchantID))
			if err != nil {
				t.Fatal(err)
			}
			counts := map[string]int64{}
			for _, addresses := range all {
				for _, block := range addresses.Blocks {
					if addresses.MerchantID == merchant.MerchantID {
						counts[block.Block] = block.Requests
					}
				}
			}
			return maps.Equal(counts, map[string]int64{"198.51.100.0/24": 2, "2001:db8:1::/48": 2})
		})
	}
}

func TestMerchantMe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rotatedAt, expiresAt := time.Date(2026, 11, 20, 9, 30, 0, 500_000_000, time.UTC), time.Now().Add(time.Hour).UTC()
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48", "2001:db8::7"}
		r.TimeZone = "Europe/Berlin"
		r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 60, Burst: 120}
		r.Sessions = v1alpha1.SessionSettings{LifetimeSeconds: 600, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReject}
	})
	key := f.key("till", acme, func(r *published.KeyRecord) {
		r.Generation, r.ExpiresAt = 4, &expiresAt
		r.LastRotation = published.RotationEvent{Time: rotatedAt, Cause: v1alpha1.RotationTrigger}
	})
	parsed, err := apikey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	r := f.start()
	profile := func() map[string]any { return r.call(http.MethodGet, me, key, "").want(t, http.StatusOK).body }

	want := map[string]any{
		"livemode": true,
		"merchant": map[string]any{
			"id": "mer_" + acme.MerchantID, "name": "Acme acme", "status": "Active",
			"ipAllowlist": []any{"127.0.0.1", "203.0.113.0/24", "2001:db8::/48", "2001:db8::7"},
			"currency":    "EUR",
			"timeZone":    "Europe/Berlin",
			"rateLimit":   map[string]any{"requestsPerSecond": 60.0, "burst": 120.0},
			"sessions":    map[string]any{"lifetimeSeconds": 600.0, "maxAmountCents": 10_000_000.0, "idempotencyMismatch": "Reject"},
		},
		"apiKey": map[string]any{
			"id": parsed.ID(), "prefix": parsed.Prefix(), "generation": 4.0,
			"createdAt": float64(f.keySecret(key).CreationTimestamp.UnixMilli()), "rotatedAt": float64(rotatedAt.UnixMilli()),
			"expiresAt": float64(expiresAt.UnixMilli()), "lastUsedAt": nil,
			"permissions": []any{"create", "read", "list", "cancel", "rotate"}, "ipAllowlist": []any{},
		},
	}
	if diff := cmp.Diff(want, profile()); diff != "" {
		t.Errorf("the first answer (-want +got):\n%s", diff)
	}
	lastUsedAt, ok := profile()["apiKey"].(map[string]any)["lastUsedAt"].(float64)
	if used := time.UnixMilli(int64(lastUsedAt)); !ok || time.Since(used).Abs() > time.Minute {
		t.Errorf("lastUsedAt %v after a use", used)
	}
}

func TestMerchantMe_Defaults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	got := f.start().call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	if diff := cmp.Diff([]any{}, got.body["merchant"].(map[string]any)["ipAllowlist"]); diff != "" {
		t.Errorf("ipAllowlist (-want +got):\n%s", diff)
	}
	if zone := got.body["merchant"].(map[string]any)["timeZone"]; zone != "UTC" {
		t.Errorf("timeZone %v, want UTC", zone)
	}
	if expiry := got.body["apiKey"].(map[string]any)["expiresAt"]; expiry != nil {
		t.Errorf("expiresAt %v, want null", expiry)
	}
}

const (
	notAccepted = "missing or invalid token"
	notAllowed  = "account is not allowed to use this path"
)

func TestAccounts_Unauthorized(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, stranger := f.rail("bank"), f.account("stranger")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")

	for name, authorization := range map[string][]string{
		"no header":            nil,
		"an empty one":         {""},
		"no token":             {"Bearer "},
		"another scheme":       {"Basic " + rail},
		"no scheme":            {rail},
		"two tokens":           {"Bearer " + rail, "Bearer " + rail},
		"two in one":           {"Bearer " + rail + ", Bearer " + rail},
		"a merchant's API key": {"Bearer " + key},
		"a forged token":       {"Bearer " + rail[:len(rail)-8] + "AAAAAAAA"},
		"nonsense":             {"Bearer a.b.c"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, value := range authorization {
				headers = append(headers, "Authorization", value)
			}
			got := r.report(id, "", paid(1), headers...)
			got.wantError(t, http.StatusUnauthorized, notAccepted)
			if got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate %q", got.header.Get("WWW-Authenticate"))
			}
		})
	}
	r.report(id, stranger, paid(1)).wantError(t, http.StatusForbidden, notAllowed)

	// A caller without the right learns nothing of sessions or reports.
	for _, path := range []string{id, "ps_aaaaaaaaaaaa000000000000000000", "x"} {
		for _, body := range []string{paid(1), `{`, hugeBody} {
			r.report(path, "", body).wantError(t, http.StatusUnauthorized, notAccepted)
			r.report(path, stranger, body).wantError(t, http.StatusForbidden, notAllowed)
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
	r.report(id, "", paid(1), "Authorization", "bearer  "+rail).want(t, http.StatusOK)
}

// briefly disables the cache of decisions about rails.
func briefly(o *apiserver.Options) { o.InternalCacheTTL = time.Nanosecond }

func TestAccounts_RightTakenAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(briefly)
	const missing = "ps_aaaaaaaaaaaa000000000000000000"
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
	f.dismiss("bank")
	r.report(missing, rail, paid(1)).wantError(t, http.StatusForbidden, notAllowed)
	f.admit("bank")
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
}

func TestAccounts_KubernetesDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, unknown := f.rail("bank"), f.rail("unknown")
	remembering := f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	forgetful := f.start(briefly)
	id := remembering.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, r := range []*replica{remembering, forgetful} {
		r.report("x", rail, "").want(t, http.StatusNotFound)
		r.proxy.Cut()
	}
	for _, got := range []result{remembering.report(id, unknown, paid(1)), forgetful.report(id, rail, paid(1))} {
		got.wantError(t, http.StatusServiceUnavailable, unavailable)
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	remembering.report(id, rail, paid(1)).want(t, http.StatusOK)
	forgetful.proxy.Restore()
	forgetful.report(id, rail, paid(1)).want(t, http.StatusOK)
}

func TestAccounts_Audience(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.InternalAudience = "settlements" })
	r.report("x", rail, "").wantError(t, http.StatusUnauthorized, notAccepted)
	r.report("x", f.token("bank", "settlements"), "").want(t, http.StatusNotFound)
}

// The Kubernetes API keeps an audit log, and a session's id is a payer's capability.
func TestAccounts_NoSessionIDInReviews(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	asked := f.bodiesToKubernetes()
	r := f.start(briefly)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.railGet(id, rail).want(t, http.StatusOK)
	r.hold(id, rail, `{"paymentRef":"a","seconds":1}`).want(t, http.StatusConflict)
	r.refund(id, rail, refundBody("bank-1", "back-1", 1)).want(t, http.StatusOK)
	all := asked()
	if !strings.Contains(all, "subjectaccessreviews") || strings.Contains(all, id[5:]) {
		t.Errorf("the Kubernetes API was asked:\n%s", all)
	}
}

const reportAgain = "temporarily unavailable; send the same report again"
