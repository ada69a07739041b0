package apiserver_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each rotation is a write that every replica hears of: of one ApiKey there are 100 at once, and one a second after that.
func TestRotationsOfOneApiKeyAreLimited(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, other := f.key("till", acme), f.key("other", acme)
	replicas := []*replica{f.start(), f.start()}
	began := time.Now()
	var limited result
	rotations := 0
	for limited.status == 0 && rotations < 500 {
		got := replicas[rotations%2].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusTooManyRequests {
			limited = got
			continue
		}
		key = got.want(t, http.StatusOK).text("fullKey")
		f.issued = append(f.issued, key)
		rotations++
	}
	if most := 100 + int(time.Since(began)/time.Second) + 1; rotations < 100 || rotations > most {
		t.Errorf("%d rotations, want 100 to %d", rotations, most)
	}
	if limited.header.Get("Retry-After") != "1" || !strings.HasPrefix(limited.header.Get("RateLimit"), `"rotations";r=0;`) {
		t.Errorf("the refusal has %v", limited.header)
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	}
	f.rotated(replicas[0], other)
	eventually(t, "the key rotates again", func() bool {
		got := replicas[0].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusOK {
			f.issued = append(f.issued, got.text("fullKey"))
		}
		return got.status == http.StatusOK
	})
	counted := 0
	for _, r := range replicas {
		n, err := strconv.Atoi(r.metric(`merchant_operator_http_rate_limited_total{limit="rotations"}`))
		if err != nil {
			t.Fatal(err)
		}
		counted += n
	}
	if counted == 0 {
		t.Error("no refusal is counted")
	}
}
