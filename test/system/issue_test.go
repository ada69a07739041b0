package system

import (
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// issue rotates a key on one replica's internal listener, as the console does.
func (s tenant) issue(replica int, token string, key *v1alpha1.ApiKey, generation, overlapSeconds int64) fixture.Answer {
	s.T.Helper()
	path, body := fixture.RotateByID(key, generation, overlapSeconds)
	return s.send(shared.replicas[replica].Internal, http.MethodPost, path, token, body)
}

// firstKey issues the first key of an ApiKey, and waits until every replica accepts it: the ApiKey itself reaches a replica by its watch.
func (s tenant) firstKey(issuer string, apiKey *v1alpha1.ApiKey) string {
	s.T.Helper()
	key := s.want(s.issue(0, issuer, apiKey, 1, 0), http.StatusOK).Text("fullKey")
	s.eventuallyEverywhere(key, http.StatusOK)
	return key
}

// TestAKeyThatNoSecretHas goes the console's way: an ApiKey, its first key, a charge, a rotation with an overlap, and the end of
// the old key.
func TestAKeyThatNoSecretHas(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	issuer := s.IssuerToken()
	apiKey := s.Unissued("till", "coffee")

	first := s.firstKey(issuer, apiKey)
	for replica := range shared.replicas {
		s.charge(replica, first)
	}
	second := s.want(s.issue(1, issuer, apiKey, 2, 3600), http.StatusOK).Text("fullKey")
	for replica := range shared.replicas {
		s.charge(replica, first)
		s.charge(replica, second)
	}
	third := s.want(s.issue(0, issuer, apiKey, 3, 0), http.StatusOK).Text("fullKey")
	for replica := range shared.replicas {
		for _, dead := range []string{first, second} {
			if got := s.try(replica, dead); got != http.StatusUnauthorized {
				t.Errorf("replica %d answers %d to a key that has ended", replica, got)
			}
		}
		s.charge(replica, third)
	}

	s.Eventually("the status shows the rotations", func() bool {
		s.AwaitReady(apiKey)
		return apiKey.Status.KeyGeneration == 4
	})
	last := apiKey.Status.LastRotation
	if last.Cause != v1alpha1.RotationAPI || last.Actor != "ann" || apiKey.Status.Prefix != third[:25] {
		t.Errorf("status: %+v, prefix %s", last, apiKey.Status.Prefix)
	}
	var secrets corev1.SecretList
	if err := s.Kube.List(t.Context(), &secrets, client.InNamespace(s.Namespace)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("the tenant has %d Secrets, %v", len(secrets.Items), err)
	}
}

// TestTwoPeopleRotateAtOnce lets both press the button that they see, on different replicas.
func TestTwoPeopleRotateAtOnce(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	issuer := s.IssuerToken()
	apiKey := s.Unissued("till", "coffee")
	s.firstKey(issuer, apiKey)
	for generation := int64(2); generation <= 11; generation++ {
		var answers [2]fixture.Answer
		var both sync.WaitGroup
		for i := range answers {
			both.Go(func() { answers[i] = s.issue(i, issuer, apiKey, generation, 0) })
		}
		both.Wait()
		winner, loser := answers[0], answers[1]
		if winner.Status != http.StatusOK {
			winner, loser = loser, winner
		}
		s.want(winner, http.StatusOK)
		if s.want(loser, http.StatusConflict).Body["generation"] != float64(generation+1) {
			t.Errorf("the loser reads %s", loser.Raw)
		}
		for replica := range shared.replicas {
			s.charge(replica, winner.Text("fullKey"))
		}
	}
}
