package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

// checker is what *testing.T and *rapid.T have in common here.
type checker interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// asking returns the verdict on a digest, asked by a replica that knows an older revision.
func asking(t checker, s *store.Store, asks store.Admission, digest apikey.Digest) bool {
	t.Helper()
	asks.Revision, asks.Live, asks.Digest = 0, false, digest
	_, err := s.Admit(t.Context(), asks)
	if err != nil && !errors.Is(err, store.ErrKeyRejected) {
		t.Fatal(err)
	}
	return err == nil
}

// The writes of any number of replicas may come in any order: the highest revision stays, and of one
// revision a revocation is final.
func TestOverridesEndTheSameInAnyOrder(t *testing.T) {
	s := open(t, shared.URL())
	rapid.Check(t, func(t *rapid.T) {
		asks := merchant()
		digests := map[int64]apikey.Digest{}
		highest, revoked := int64(0), false
		for range rapid.IntRange(1, 8).Draw(t, "writes") {
			revision := rapid.Int64Range(1, 4).Draw(t, "revision")
			revokes := rapid.Bool().Draw(t, "revokes")
			if _, ok := digests[revision]; !ok {
				digests[revision] = newDigest()
			}
			override := store.Override{MerchantID: asks.MerchantID, KeyID: asks.KeyID, Revision: revision}
			if !revokes {
				override.Accepted = []store.Accepted{{Digest: digests[revision]}}
			}
			if err := s.WriteOverride(t.Context(), override); err != nil {
				t.Fatal(err)
			}
			if revision > highest {
				highest, revoked = revision, false
			}
			revoked = revoked || (revokes && revision == highest)
		}
		for revision, digest := range digests {
			if got, want := asking(t, s, asks, digest), revision == highest && !revoked; got != want {
				t.Fatalf("the digest of revision %d is accepted: %v; the highest is %d, revoked: %v", revision, got, highest, revoked)
			}
		}
	})
}

func TestConcurrentOverridesKeepTheHighest(t *testing.T) {
	replicas := []*store.Store{open(t, shared.URL()), open(t, shared.URL())}
	asks := merchant()
	digests := make([]apikey.Digest, 50)
	var writers sync.WaitGroup
	for i := range digests {
		digests[i] = newDigest()
		writers.Go(func() {
			err := replicas[i%2].WriteOverride(t.Context(), store.Override{
				MerchantID: asks.MerchantID, KeyID: asks.KeyID, Revision: int64(i + 1), Accepted: []store.Accepted{{Digest: digests[i]}},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	for i, digest := range digests {
		if got, want := asking(t, replicas[0], asks, digest), i == len(digests)-1; got != want {
			t.Errorf("the digest of revision %d is accepted: %v", i+1, got)
		}
	}
}

func TestAnOverrideIsOfOneKeyOnly(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	if err := s.WriteOverride(t.Context(), store.Override{MerchantID: asks.MerchantID, KeyID: asks.KeyID, Revision: 9}); err != nil {
		t.Fatal(err)
	}
	asks.KeyID = newID()
	if _, err := s.Admit(t.Context(), asks); err != nil {
		t.Errorf("another key of the merchant: %v", err)
	}
}

func TestLargeRevisionsStayExact(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	const revision = 1<<53 - 1
	write := func(revision int64) apikey.Digest {
		digest := newDigest()
		override := store.Override{
			MerchantID: asks.MerchantID, KeyID: asks.KeyID, Revision: revision, Accepted: []store.Accepted{{Digest: digest}},
		}
		if err := s.WriteOverride(t.Context(), override); err != nil {
			t.Fatal(err)
		}
		return digest
	}
	write(revision - 1)
	last := write(revision)
	write(revision - 1)
	if !asking(t, s, asks, last) {
		t.Error("the highest revision is not the one in force")
	}
}
