//go:build gitops

package gitops

import (
	"fmt"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

func deletions() []change {
	return []change{
		{"prune a key", func(s step) []line {
			key := s.delivered("shop-14")
			s.removeKey("shop-14")
			result := s.sync("Remove a key")
			s.answers(key, http.StatusUnauthorized)
			return []line{{"an ApiKey is removed", result, "the key gets 401, for good"}}
		}},
		{"prune a merchant", func(s step) []line {
			key := s.delivered("shop-15")
			s.remove("shop-15")
			result := s.sync("Remove a merchant")
			s.answers(key, http.StatusUnauthorized)
			await.Until(s.T, fixture.Patience, "the Merchant is gone", func() bool { return s.gone("shop-15", &v1alpha1.Merchant{}) })
			return []line{{"a Merchant is removed, with its ApiKey", result, "both are gone; the key gets 401, for good"}}
		}},
		{"prune a merchant against the policy", pruneAgainstPolicy},
		{"remove the Kustomization", func(s step) []line {
			key := s.delivered("shop-18")
			for _, command := range [][]string{
				{"-n", "flux-system", "delete", "kustomization", merchants, "--wait"},
				{"apply", "-f", filepath.Join(s.clone(), "flux.yaml")},
			} {
				if _, err := s.Kubectl("", command...); err != nil {
					s.T.Fatal(err)
				}
				s.answers(key, http.StatusOK)
			}
			s.giveUpSoon()
			result := s.flux.Sync(s.T, merchants)
			return []line{{"none; the Kustomization is deleted and created again", result, "its keys get 200 all the time"}}
		}},
	}
}

// pruneAgainstPolicy removes a Merchant that is not Closed, and then one that is.
func pruneAgainstPolicy(s step) []line {
	policy := repository.Path("config", "deletion-policy")
	if _, err := s.Kubectl("", "apply", "-k", policy); err != nil {
		s.T.Fatal(err)
	}
	await.Until(s.T, fixture.Patience, "the policy is in force", func() bool {
		_, err := s.Kubectl("", "-n", namespace, "delete", "merchant", "shop-16", "--dry-run=server")
		return err != nil
	})
	key := s.delivered("shop-16")
	s.remove("shop-16")
	refused := s.sync("Remove a merchant that is not Closed")
	s.answers(key, http.StatusUnauthorized)
	forgotten := s.becomesReady()
	state := s.merchant("shop-16").Spec.State
	s.setMerchant("shop-17", "state: Closed")
	s.mustSync("Close a merchant")
	s.remove("shop-17")
	closed := s.sync("Remove a merchant that is Closed")
	await.Until(s.T, fixture.Patience, "the Merchant is gone", func() bool { return s.gone("shop-17", &v1alpha1.Merchant{}) })
	if _, err := s.Kubectl("", "delete", "-k", policy); err != nil {
		s.T.Fatal(err)
	}
	return []line{
		{"a Merchant is removed, with its ApiKey, against the [deletion policy](merchant.md#deletion)", refused, "the key gets 401, for good; the Merchant stays"},
		{"the retry after that", forgotten, fmt.Sprintf("**Flux has forgotten the Merchant**, which is still %s", state)},
		{"a Merchant is removed, which an earlier commit has closed", closed, "both are gone; the policy allows it"},
	}
}

func recoveries() []change {
	return []change{
		{"operator away", func(s step) []line {
			if err := s.Stop("operator"); err != nil {
				s.T.Fatal(err)
			}
			key, leaked := s.delivered("shop-19"), s.delivered("shop-20")
			s.setKey("shop-19", disabled)
			s.edit("shop-20", `{trigger: "2026-11-21", overlapSeconds: 86400}`, `{trigger: leak, overlapSeconds: 0}`)
			away := s.sync("Disable a key, rotate another")
			sees := fmt.Sprintf("both keys still work: %d, %d", s.use(key), s.use(leaked))
			if err := s.startOperator(); err != nil {
				s.T.Fatal(err)
			}
			s.answers(key, http.StatusUnauthorized)
			s.answers(leaked, http.StatusUnauthorized)
			s.answers(s.delivered("shop-20"), http.StatusOK)
			return []line{
				{"an ApiKey with `state: Disabled`, and another is rotated, while the operator is away for the whole sync", away, sees},
				{"none; the operator is back", s.becomesReady(), "the disabled key and the old one get 401"},
			}
		}},
		{"restore", restore},
	}
}

// restore loses everything but Git, as with a new cluster.
func restore(s step) []line {
	const own = "c0e5dbd546cda2406ded78f9c2571b4e85cf8e4d9eafb7e87e39523272acc2d1" // of "external-key-external-key-external-key"
	s.edit("shop-21", "  delivery: {secretName: shop-21-till-key}\n  rotation: {trigger: \"2026-11-21\", overlapSeconds: 86400}\n", "  keyDigest: "+own+"\n")
	s.mustSync("Bring a key")
	old := s.delivered("shop-22")
	if err := s.Stop("operator"); err != nil {
		s.T.Fatal(err)
	}
	for _, kind := range []client.ObjectList{&v1alpha1.ApiKeyList{}, &v1alpha1.MerchantList{}} {
		s.lose(namespace, kind)
	}
	for _, name := range []string{namespace, kubetest.CredentialsNamespace} {
		for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
			s.lose(name, kind)
		}
	}
	if err := s.startOperator(); err != nil {
		s.T.Fatal(err)
	}
	result := s.flux.Sync(s.T, merchants)
	s.answers(old, http.StatusUnauthorized)
	s.answers(s.delivered("shop-22"), http.StatusOK)
	s.answers("external-key-external-key-external-key", http.StatusOK)
	return []line{{"none; everything but Git is lost", result, "all keys are new, in their Secrets, and the old ones get 401; a `keyDigest` is accepted as before"}}
}
