package authz_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// forged is a token with another last character, so that its signature is wrong.
func forged(token string) string {
	end := "A"
	if strings.HasSuffix(token, "A") {
		end = "Q"
	}
	return token[:len(token)-1] + end
}

// peer is where callers connect from.
const peer = "192.0.2.1:1234"

// jwt is a token with these claims, with an invalid signature.
func jwt(claims, signature string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + signature
}

func TestCheck(t *testing.T) {
	f := newFixture(t)
	rail, stranger := f.account("rail"), f.account("stranger")
	f.allow("rail", "/internal/v1/sessions/*")
	elsewhere := f.account("elsewhere")
	f.allow("elsewhere", "/internal/v1/refunds/*")
	dismissed := f.account("dismissed")
	f.allow("dismissed", "/internal/v1/sessions/*")
	if err := f.admin.CoreV1().ServiceAccounts(f.namespace).Delete(t.Context(), "dismissed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	guard := f.guard()
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"a rail":                               {rail, nil},
		"an account without the right":         {stranger, authz.ErrForbidden},
		"an account with another right":        {elsewhere, authz.ErrForbidden},
		"an account that is gone":              {dismissed, authz.ErrUnauthenticated},
		"a forged token":                       {forged(rail), authz.ErrUnauthenticated},
		"a token for another audience":         {f.token("rail", "somebody-else"), authz.ErrUnauthenticated},
		"nonsense in the shape of a token":     {"a.b.c", authz.ErrUnauthenticated},
		"nonsense with claims":                 {jwt(`{"sub":"rail"}`, "nonsense"), authz.ErrUnauthenticated},
		"an unsigned token":                    {"eyJhbGciOiJub25lIn0.eyJzdWIiOiJyYWlsIn0.", authz.ErrUnauthenticated},
		"a token with something in front":      {"x" + rail, authz.ErrUnauthenticated},
		"a token that was cut off":             {rail[:len(rail)/2], authz.ErrUnauthenticated},
		"the name of the account":              {"system:serviceaccount:" + f.namespace + ":rail", authz.ErrUnauthenticated},
		"two tokens":                           {rail + "." + rail, authz.ErrUnauthenticated},
		"no token":                             {"", authz.ErrUnauthenticated},
		"a token with a line break at its end": {rail + "\n", authz.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second is from memory
				got, err := guard.Check(t.Context(), peer, test.token)
				if !errors.Is(err, test.want) || err != nil && got != "" {
					t.Errorf("Check: %q, %v; want %v", got, err, test.want)
				}
				if account := "system:serviceaccount:" + f.namespace + ":rail"; err == nil && got != account {
					t.Errorf("the account is %q, want %q", got, account)
				}
			}
		})
	}
	for _, token := range []string{rail, stranger, elsewhere, dismissed} {
		if strings.Contains(f.log.String(), token) {
			t.Error("a token is in the log")
		}
	}
	if account := "system:serviceaccount:" + f.namespace + ":stranger"; strings.Count(f.log.String(), account) != 1 {
		t.Errorf("the log does not name once who was refused:\n%s", &f.log)
	}
}

// A merchant's API key presented at the wrong port must not be sent around the cluster.
func TestCheck_NoJWT(t *testing.T) {
	f := newFixture(t)
	guard := f.guard()
	for name, secret := range map[string]string{
		"an API key":           "mk_live_abcdefgh2345_" + strings.Repeat("a", 38),
		"a key made elsewhere": "correct-horse.battery$staple.0123456789",
		"a short password":     "hunter2",
		"something endless":    strings.Repeat("a", 4000) + "." + strings.Repeat("b", 4000) + "." + strings.Repeat("c", 4000),
	} {
		if _, err := guard.Check(t.Context(), peer, secret); !errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked := f.asked.Load(); asked != 0 {
		t.Errorf("the Kubernetes API was asked %d times", asked)
	}
}

func TestAudience(t *testing.T) {
	f := newFixture(t)
	general := f.account("rail")
	f.allow("rail", "/internal/v1/sessions/*")
	guard := f.guard(func(o *authz.Options) { o.Audience = "settlements" })
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"for this audience":      {f.token("rail", "settlements"), nil},
		"for several audiences":  {f.token("rail", "others", "settlements"), nil},
		"for another":            {f.token("rail", "others"), authz.ErrUnauthenticated},
		"for the Kubernetes API": {general, authz.ErrUnauthenticated},
	} {
		if _, err := guard.Check(t.Context(), peer, test.token); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The claims of a token are enough to refuse it.
func TestCheck_ClaimsBeforeReview(t *testing.T) {
	f := newFixture(t)
	guard := f.guard(func(o *authz.Options) { o.Audience = "settlements" })
	now := f.clock().Unix()
	for name, test := range map[string]struct {
		claims string
		asked  int64
	}{
		"for this audience":               {fmt.Sprintf(`{"aud":["settlements"],"exp":%d}`, now+60), 1},
		"for this audience only":          {fmt.Sprintf(`{"aud":"settlements","exp":%d}`, now+60), 1},
		"ended, by a clock an hour ahead": {fmt.Sprintf(`{"aud":["settlements"],"exp":%d}`, now-3600), 1},
		"without an end":                  {`{"aud":["settlements"]}`, 1},
		"ended within the day":            {fmt.Sprintf(`{"aud":["settlements"],"exp":%d}`, now-86_000), 1},
		"ended long ago":                  {fmt.Sprintf(`{"aud":["settlements"],"exp":%d}`, now-90_000), 0},
		"for another audience":            {fmt.Sprintf(`{"aud":["https://kubernetes.default.svc"],"exp":%d}`, now+60), 0},
		"without an audience":             {fmt.Sprintf(`{"exp":%d}`, now+60), 0},
		"an audience that is none":        {`{"aud":7}`, 0},
		"claims that are no object":       {`[]`, 0},
		"claims that are no JSON":         {`{`, 0},
	} {
		before := f.asked.Load()
		if _, err := guard.Check(t.Context(), peer, jwt(test.claims, "forged")); !errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.asked.Load() - before; got != test.asked {
			t.Errorf("%s: the Kubernetes API was asked %d times, want %d", name, got, test.asked)
		}
	}
}

func TestCheck_CachedForLifetime(t *testing.T) {
	f := newFixture(t)
	rail := f.account("rail")
	f.allow("rail", "/internal/v1/sessions/*")
	guard := f.guard()
	check := func(want error, asked int64) {
		t.Helper()
		before := f.asked.Load()
		if _, err := guard.Check(t.Context(), peer, rail); !errors.Is(err, want) {
			t.Errorf("Check: %v, want %v", err, want)
		}
		if got := f.asked.Load() - before; got != asked {
			t.Errorf("%d requests to the Kubernetes API, want %d", got, asked)
		}
	}
	check(nil, 2)
	check(nil, 0)
	f.disallow("rail")
	f.advance(lifetime - 1)
	check(nil, 0)
	f.advance(1)
	check(authz.ErrForbidden, 2)
	f.allow("rail", "/internal/v1/sessions/*")
	f.advance(lifetime - 1)
	check(authz.ErrForbidden, 0)
	f.advance(1)
	check(nil, 2)
	check(nil, 0)
}

func TestCheck_APIServerAway(t *testing.T) {
	f := newFixture(t)
	rail, stranger := f.account("rail"), f.account("stranger")
	f.allow("rail", "/internal/v1/sessions/*")
	guard := f.guard()
	check := func(token string, want error) {
		t.Helper()
		if _, err := guard.Check(t.Context(), peer, token); !errors.Is(err, want) {
			t.Errorf("Check: %v, want %v", err, want)
		}
	}
	check(rail, nil)
	f.cut.Store(true)
	check(rail, nil)
	check(stranger, authz.ErrUnavailable)
	f.advance(lifetime)
	check(rail, authz.ErrUnavailable)
	f.cut.Store(false)
	check(rail, nil) // an outage is not cached
	check(stranger, authz.ErrForbidden)
}

// Concurrent checks of one token share one review, which goes on when the first caller leaves.
func TestCheck_ConcurrentShareReview(t *testing.T) {
	f := newFixture(t)
	rail := f.account("rail")
	f.allow("rail", "/internal/v1/sessions/*")
	asking, goOn := make(chan struct{}, 1), make(chan struct{})
	f.onAsking = func() {
		select {
		case asking <- struct{}{}:
		default:
		}
		<-goOn
	}
	guard := f.guard()

	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := guard.Check(ctx, peer, rail)
		first <- err
	}()
	<-asking
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			if _, err := guard.Check(t.Context(), peer, rail); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
	hangUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("Check of the one who hung up: %v", err)
	}
	close(goOn)
	others.Wait()
	if asked := f.asked.Load(); asked != 2 {
		t.Errorf("%d requests to the Kubernetes API, want 2", asked)
	}
}
