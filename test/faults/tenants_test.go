//go:build faults

package faults

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func tenantFaults() []fault {
	return []fault{
		{"P9", "another merchant's ids on every route", "answered as if there were none, nothing changes", tryForeignIDs},
		{"P9", "a tenant with all rights in its namespace forges what opens or reads another's", "no foreign key is accepted, none is lost", tryForging},
		{"P9", "a tenant claims the digest of another's key, which is then rotated, disabled or deleted", "the claim opens nothing", tryClaims},
	}
}

// routeWithID is a line of openapi.yaml that begins a path with a session in it, for callers with a key.
var routeWithID = regexp.MustCompile(`(?m)^  (/api/v1/sessions/\{sessionId\}.*):\n(?:.*\n)*?    (get|post):$`)

func tryForeignIDs(t *testing.T) (int, string) {
	t.Helper()
	document, err := os.ReadFile("../../apiserver/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routes := routeWithID.FindAllStringSubmatch(string(document), -1)
	if len(routes) < 2 {
		t.Fatalf("routes with ids: %v", routes)
	}
	s := deploy(t, 2, 0)
	victim := s.Merchant("coffee")
	s.Merchant("books")
	own, other := s.apiKey("coffee-till", "coffee"), s.apiKey("books-till", "books")
	base, c := s.replicas[0].public, newCaller()
	var ids []string
	for n := range 6 {
		id := s.mustCall(http.StatusCreated, base, http.MethodPost, sessions, own, `{"amountCents":100}`, "Idempotency-Key", fmt.Sprint("order-", n)).Text("sessionId")
		if n%2 == 0 {
			s.mustCall(http.StatusOK, base, http.MethodPost, sessions+"/"+id+"/cancel", own, "")
		}
		ids = append(ids, id)
	}
	mine := s.mustCall(http.StatusCreated, base, http.MethodPost, sessions, other, `{"amountCents":100}`).Text("sessionId")
	before := s.sessionsOf(victim)
	tried := 0
	rapid.Check(t, func(r *rapid.T) {
		route := rapid.SampledFrom(routes).Draw(r, "route")
		id := rapid.SampledFrom(ids).Draw(r, "session")
		id = rapid.SampledFrom([]string{
			id, mine[:5] + id[5:], strings.ToUpper(id), id + "%00", mine + "%2F..%2F" + id, mine + "/../" + id, "." + id, id + "%3FsessionId=" + mine,
			id[:len(id)-1] + "*",
		}).Draw(r, "shape")
		headers := []string{
			"Idempotency-Key", fmt.Sprint("order-", rapid.IntRange(0, 5).Draw(r, "order")),
			rapid.SampledFrom([]string{"X-Merchant-Id", "X-Original-URL", "X-HTTP-Method-Override", "X-Forwarded-For"}).Draw(r, "header"), ids[0],
		}
		method := strings.ToUpper(route[2])
		target := base + strings.Replace(route[1], "{sessionId}", id, 1)
		got, err := c.call(target, method, "", other, "", headers...)
		tried++
		if err != nil || got.Status != http.StatusNotFound || !strings.HasSuffix(got.Text("error"), " not found") {
			r.Fatalf("%s %s: %d %v, %v", method, target, got.Status, got.Body, err)
		}
	})
	if after := s.sessionsOf(victim); !maps.Equal(before, after) {
		t.Errorf("sessions changed from %v to %v", before, after)
	}
	return tried, fmt.Sprintf("%d routes, %d calls: all 404, no session changed", len(routes), tried)
}

// sessionsOf are a merchant's sessions as Redis holds them.
func (s *deployment) sessionsOf(merchant *v1alpha1.Merchant) map[string]string {
	s.t.Helper()
	found := map[string]string{}
	keys, err := s.keeper.Keys(s.t.Context(), space(merchant)+"session:*").Result()
	s.must(err)
	for _, key := range keys {
		fields, err := s.keeper.HGetAll(s.t.Context(), key).Result()
		s.must(err)
		found[key] = fmt.Sprint(fields)
	}
	return found
}
