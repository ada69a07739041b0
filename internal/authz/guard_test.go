package authz_test

import (
	"context"
	"errors"
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

func TestCheck(t *testing.T) {
	c := newCluster(t)
	rail, stranger := c.account("rail"), c.account("stranger")
	c.allow("rail", "/internal/v1/sessions/*")
	elsewhere := c.account("elsewhere")
	c.allow("elsewhere", "/internal/v1/refunds/*")
	dismissed := c.account("dismissed")
	c.allow("dismissed", "/internal/v1/sessions/*")
	if err := c.admin.CoreV1().ServiceAccounts(c.namespace).Delete(t.Context(), "dismissed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	guard := c.guard()
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"a rail":                               {rail, nil},
		"an account without the right":         {stranger, authz.ErrForbidden},
		"an account with another right":        {elsewhere, authz.ErrForbidden},
		"an account that is gone":              {dismissed, authz.ErrUnauthenticated},
		"a forged token":                       {forged(rail), authz.ErrUnauthenticated},
		"a token for another audience":         {c.token("rail", "somebody-else"), authz.ErrUnauthenticated},
		"nonsense in the shape of a token":     {"a.b.c", authz.ErrUnauthenticated},
		"an unsigned token":                    {"eyJhbGciOiJub25lIn0.eyJzdWIiOiJyYWlsIn0.", authz.ErrUnauthenticated},
		"a token with something in front":      {"x" + rail, authz.ErrUnauthenticated},
		"a token that was cut off":             {rail[:len(rail)/2], authz.ErrUnauthenticated},
		"the name of the account":              {"system:serviceaccount:" + c.namespace + ":rail", authz.ErrUnauthenticated},
		"two tokens":                           {rail + "." + rail, authz.ErrUnauthenticated},
		"no token":                             {"", authz.ErrUnauthenticated},
		"a token with a line break at its end": {rail + "\n", authz.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second is from memory
				if err := guard.Check(t.Context(), test.token); !errors.Is(err, test.want) {
					t.Errorf("Check: %v, want %v", err, test.want)
				}
			}
		})
	}
	for _, token := range []string{rail, stranger, elsewhere, dismissed} {
		if strings.Contains(c.log.String(), token) {
			t.Error("a token is in the log")
		}
	}
	if account := "system:serviceaccount:" + c.namespace + ":stranger"; strings.Count(c.log.String(), account) != 1 {
		t.Errorf("the log does not say once who was refused:\n%s", &c.log)
	}
}

// Whoever presents a merchant's API key at the wrong port must not have it sent around the cluster.
func TestWhatCannotBeATokenIsNotPassedOn(t *testing.T) {
	c := newCluster(t)
	guard := c.guard()
	for name, secret := range map[string]string{
		"an API key":           "mk_live_abcdefgh2345_" + strings.Repeat("a", 38),
		"a key made elsewhere": "correct-horse.battery$staple.0123456789",
		"a short password":     "hunter2",
		"something endless":    strings.Repeat("a", 4000) + "." + strings.Repeat("b", 4000) + "." + strings.Repeat("c", 4000),
	} {
		if err := guard.Check(t.Context(), secret); !errors.Is(err, authz.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked := c.asked.Load(); asked != 0 {
		t.Errorf("the Kubernetes API was asked %d times", asked)
	}
}

func TestAudience(t *testing.T) {
	c := newCluster(t)
	general := c.account("rail")
	c.allow("rail", "/internal/v1/sessions/*")
	guard := c.guard(func(o *authz.Options) { o.Audience = "settlements" })
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"for this audience":      {c.token("rail", "settlements"), nil},
		"for several audiences":  {c.token("rail", "others", "settlements"), nil},
		"for another":            {c.token("rail", "others"), authz.ErrUnauthenticated},
		"for the Kubernetes API": {general, authz.ErrUnauthenticated},
	} {
		if err := guard.Check(t.Context(), test.token); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

func TestAVerdictIsRememberedForItsLifetime(t *testing.T) {
	c := newCluster(t)
	rail := c.account("rail")
	c.allow("rail", "/internal/v1/sessions/*")
	guard := c.guard()
	check := func(want error, asked int64) {
		t.Helper()
		before := c.asked.Load()
		if err := guard.Check(t.Context(), rail); !errors.Is(err, want) {
			t.Errorf("Check: %v, want %v", err, want)
		}
		if got := c.asked.Load() - before; got != asked {
			t.Errorf("%d requests to the Kubernetes API, want %d", got, asked)
		}
	}
	check(nil, 2)
	check(nil, 0)
	c.disallow("rail")
	c.advance(lifetime - 1)
	check(nil, 0)
	c.advance(1)
	check(authz.ErrForbidden, 2)
	c.allow("rail", "/internal/v1/sessions/*")
	c.advance(lifetime - 1)
	check(authz.ErrForbidden, 0)
	c.advance(1)
	check(nil, 2)
	check(nil, 0)
}

func TestTheKubernetesAPIAway(t *testing.T) {
	c := newCluster(t)
	rail, stranger := c.account("rail"), c.account("stranger")
	c.allow("rail", "/internal/v1/sessions/*")
	guard := c.guard()
	check := func(token string, want error) {
		t.Helper()
		if err := guard.Check(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("Check: %v, want %v", err, want)
		}
	}
	check(rail, nil)
	c.cut.Store(true)
	check(rail, nil)
	check(stranger, authz.ErrUnavailable)
	c.advance(lifetime)
	check(rail, authz.ErrUnavailable)
	c.cut.Store(false)
	check(rail, nil) // that nobody could say is not remembered
	check(stranger, authz.ErrForbidden)
}

// Callers with one token share one question, and it outlives whoever asked first.
func TestOneQuestionForAll(t *testing.T) {
	c := newCluster(t)
	rail := c.account("rail")
	c.allow("rail", "/internal/v1/sessions/*")
	asking, goOn := make(chan struct{}, 1), make(chan struct{})
	c.onAsking = func() {
		select {
		case asking <- struct{}{}:
		default:
		}
		<-goOn
	}
	guard := c.guard()

	ctx, hangUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- guard.Check(ctx, rail) }()
	<-asking
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			if err := guard.Check(t.Context(), rail); err != nil {
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
	if asked := c.asked.Load(); asked != 2 {
		t.Errorf("%d requests to the Kubernetes API, want 2", asked)
	}
}
