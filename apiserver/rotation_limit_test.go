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
	s := newScene(t)
	acme := s.merchant("acme")
	key, other := s.key("till", acme), s.key("other", acme)
	replicas := []*replica{s.start(), s.start()}
	began := time.Now()
	var limited answer
	rotations := 0
	for limited.status == 0 && rotations < 500 {
		got := replicas[rotations%2].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusTooManyRequests {
			limited = got
			continue
		}
		key = got.want(t, http.StatusOK).text("fullKey")
		s.issued = append(s.issued, key)
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
	s.rotated(replicas[0], other)
	eventually(t, "the key rotates again", func() bool {
		got := replicas[0].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusOK {
			s.issued = append(s.issued, got.text("fullKey"))
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
