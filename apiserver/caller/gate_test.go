package caller

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
)

// noKeyHandler needs no Redis.
type noKeyHandler struct{ directory.KeyHandler }

func (noKeyHandler) KeyUnverified(published.KeyRecord) {}

// allowlistHandler is the handler of requests with a key, and the key of a merchant whose allowlist it sets. 204 is its answer to those
// that are let in.
type allowlistHandler struct {
	http.Handler

	key       string
	directory *directory.Directory
}

const fuzzedProxy = "192.0.2.1"

func newAllowlistHandler(t testing.TB) allowlistHandler {
	t.Helper()
	registry := prometheus.NewRegistry()
	index := directory.New(directory.Options{Log: slog.New(slog.DiscardHandler), Registerer: registry, KeyHandler: noKeyHandler{}, Now: time.Now})
	clients, err := clientaddr.NewResolver([]netip.Prefix{netip.MustParsePrefix(fuzzedProxy + "/32")})
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate(GateOptions{
		Directory: index, Clients: clients, Now: time.Now, Reasons: NewReasons(registry), Log: slog.New(slog.DiscardHandler), Registerer: registry,
	})
	key, err := apikey.New(published.ID("key"))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := published.EncodeKey("credentials", published.KeyRecord{
		KeyID: key.ID(), MerchantID: published.ID("acme"), Source: published.Source{Namespace: "shops", Name: "till", UID: "key"},
		Generation: 1, Revision: 1, Current: published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: time.Now().UTC()},
		State: v1alpha1.ApiKeyActive, LastRotation: published.RotationEvent{Time: time.Now().UTC(), Cause: v1alpha1.RotationInitial},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = index.Informer("key").Add(secret)
	admitted := func(_ *web.Event, w http.ResponseWriter, _ *http.Request, _ Caller) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	options := web.Options{Log: slog.New(slog.DiscardHandler), Draining: func() bool { return false }, Answer: func(error) web.Answer { return web.Answer{Status: http.StatusUnauthorized} }}
	routes := web.Routes{"/admitted": {http.MethodGet: gate.WithKey(v1alpha1.PermissionRead, admitted)}}
	return allowlistHandler{web.New(options, web.NewMetrics(registry), routes), key.Reveal(), index}
}

// publish reports whether the allowlist is a valid one.
func (h allowlistHandler) publish(t *testing.T, entries []v1alpha1.IPBlock, mode v1alpha1.IPAllowlistMode) bool {
	t.Helper()
	configMap, err := published.EncodeMerchant("credentials", published.MerchantRecord{
		MerchantID: published.ID("acme"), Namespace: "shops", Name: "acme", DisplayName: "Acme", State: v1alpha1.MerchantActive, Currency: "EUR",
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		IPAllowlist: entries, IPAllowlistMode: mode,
	})
	if err != nil {
		return false
	}
	_ = h.directory.Informer("merchant").Add(configMap)
	return true
}

func (h allowlistHandler) admits(peer string, forwardedFor ...string) bool {
	request := httptest.NewRequest(http.MethodGet, "/admitted", http.NoBody)
	request.RemoteAddr = peer
	request.Header["X-Forwarded-For"] = forwardedFor
	request.Header.Set("Authorization", "Bearer "+h.key)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder.Code == http.StatusNoContent
}

// FuzzAllowlist compares what allowlist.Test says of an address with what the API does to a request from there, whether the address is
// the peer's or a proxy's word. With the mode Report the API refuses only what is no address at all.
func FuzzAllowlist(f *testing.F) {
	for _, list := range []string{
		"", "203.0.113.0/24", "203.0.113.7", "203.0.113.7/32", "0.0.0.0/0", "2001:db8::/48", "2001:db8::1 203.0.113.0/25", "::/0",
		"::ffff:203.0.113.7", "203.0.113.7/24", "fe80::1%eth0", "fe80::1", "nonsense", "192.0.2.0/24",
	} {
		for _, address := range []string{
			"203.0.113.7", "203.0.113.200", "::ffff:203.0.113.7", "::ffff:cb00:7107", "2001:db8::1", "2001:DB8:0::1", "fe80::1%eth0", "fe80::1%", "203.0.113.7:443",
			"[2001:db8::1]:443", "[::ffff:203.0.113.7%1]:1", " 203.0.113.7 ", "203.0.113.07", "203.0.113.0/24", "192.0.2.1", "::", "", "nonsense",
		} {
			f.Add(list, address)
		}
	}
	h := newAllowlistHandler(f)
	f.Fuzz(func(t *testing.T, entries, address string) {
		if strings.Contains(address, ",") {
			t.Skip() // several addresses
		}
		var blocks []v1alpha1.IPBlock
		for entry := range strings.FieldsSeq(entries) {
			blocks = append(blocks, v1alpha1.IPBlock(entry))
		}
		list, err := allowlist.Parse(blocks)
		if valid := h.publish(t, blocks, v1alpha1.IPAllowlistEnforce); valid != (err == nil) {
			t.Fatalf("%q is published: %v, and read with %v", entries, valid, err)
		}
		if err != nil {
			return
		}
		allowed, err := list.Test(address)
		if got := h.admits(fuzzedProxy+":1", address); got != allowed {
			t.Errorf("%q on the list %q: the API says %v, the test %v", address, entries, got, allowed)
		}
		if peer, parseErr := netip.ParseAddr(address); parseErr == nil {
			if got := h.admits(netip.AddrPortFrom(peer, 1).String()); got != allowed {
				t.Errorf("the peer %q on the list %q: the API says %v, the test %v", address, entries, got, allowed)
			}
		}
		h.publish(t, blocks, v1alpha1.IPAllowlistReport)
		if got := h.admits(fuzzedProxy+":1", address); got != (err == nil) {
			t.Errorf("%q on the list %q that reports only: %v", address, entries, got)
		}
	})
}
