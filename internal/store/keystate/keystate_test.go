package keystate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

type services = storetest.Services

// shared is the redis-server of every test that does not harm its server.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

var (
	open        = storetest.New
	client      = storetest.Inspect
	merchant    = storetest.Merchant
	newID       = storetest.ID
	newDigest   = storetest.Digest
	merchantTag = storetest.Tag
	must        = storetest.Must
	keyRef      = storetest.KeyRef
	write       = storetest.WriteOverride
	lastUses    = storetest.LastUses
)

func second[T any](_ T, err error) error { return err }

func third[A, B any](_ A, _ B, err error) error { return err }

// asking returns the decision on a digest, asked by a replica that knows an older revision.
func asking(t storetest.Checker, s *services, asks admission.Request, digest apikey.Digest) bool {
	t.Helper()
	asks.Order, asks.Accepted, asks.Digest = published.Order{}, false, digest
	_, err := s.Admit(t.Context(), asks)
	if err != nil && !errors.Is(err, admission.ErrKeyRejected) {
		t.Fatal(err)
	}
	return err == nil
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	server := redistest.Start(t)
	s, key := open(t, server.URL()), keyRef(merchant())
	storetest.CheckDeclared(t, server, func() {
		must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: key}))
		must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: key, Ended: true}))
		must(t, third(s.Keys.Overrides(t.Context(), key)))
		must(t, second(s.Keys.LastUses(t.Context(), session.MerchantBucket(key.MerchantID), []string{key.KeyID}, time.Time{})))
	})
}

func TestScripts_FullRedis(t *testing.T) {
	write := func(accepted bool) func(t *testing.T, s *services, asks admission.Request) func() error {
		return func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			override := keystate.Override{Ref: keyRef(asks), Order: asks.Order}
			if accepted {
				override.Accepted = []keystate.Accepted{{Digest: asks.Digest}}
			}
			return func() error { return s.Keys.WriteOverride(t.Context(), override) }
		}
	}
	storetest.CheckFull(t, redistest.Start(t), []storetest.FullCase{
		{Name: "override of a rotation", Arrange: write(true)},
		{Name: "revocation", Drains: true, Arrange: write(false)},
		{Name: "end of a key", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error {
				return s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Order: asks.Order, Ended: true})
			}
		}},
		{Name: "revocation of a key that is gone", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			must(t, write(true)(t, s, asks)())
			return func() error { return s.Keys.RevokeGone(t.Context(), keyRef(asks), asks.Order, asks.Order) }
		}},
		{Name: "read overrides", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error { return third(s.Keys.Overrides(t.Context(), keyRef(asks))) }
		}},
		{Name: "read last uses", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error {
				return second(s.Keys.LastUses(t.Context(), session.MerchantBucket(asks.MerchantID), []string{asks.KeyID}, time.Time{}))
			}
		}},
	})
}
