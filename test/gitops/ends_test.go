//go:build gitops

package gitops

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

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
		{"prune a key", func(t *testing.T, p *pipeline) []line {
			key := p.delivered(t, "shop-14")
			p.removeKey(t, "shop-14")
			result := p.sync(t, "Remove a key")
			p.answers(t, key, http.StatusUnauthorized)
			return []line{{"an ApiKey is removed", result, "the key gets 401, for good"}}
		}},
		{"prune a merchant", func(t *testing.T, p *pipeline) []line {
			key := p.delivered(t, "shop-15")
			p.remove(t, "shop-15")
			result := p.sync(t, "Remove a merchant")
			p.answers(t, key, http.StatusUnauthorized)
			await.Until(t, fixture.Patience, "the Merchant is gone", func() bool { return p.gone(t, "shop-15", &v1alpha1.Merchant{}) })
			return []line{{"a Merchant is removed, with its ApiKey", result, "both are gone; the key gets 401, for good"}}
		}},
		{"prune a merchant against the policy", pruneAgainstPolicy},
		{"remove the Kustomization", func(t *testing.T, p *pipeline) []line {
			key := p.delivered(t, "shop-18")
			for _, command := range [][]string{
				{"-n", "flux-system", "delete", "kustomization", merchants, "--wait"},
				{"apply", "-f", filepath.Join(p.clone(), "flux.yaml")},
			} {
				if _, err := p.Kubectl("", command...); err != nil {
					t.Fatal(err)
				}
				p.answers(t, key, http.StatusOK)
			}
			p.giveUpSoon(t)
			result := p.flux.Sync(t, merchants)
			return []line{{"none; the Kustomization is deleted and created again", result, "its keys get 200 all the time"}}
		}},
	}
}

// pruneAgainstPolicy removes a Merchant that is not Closed, and then one that is.
func pruneAgainstPolicy(t *testing.T, p *pipeline) []line {
	policy := repository.Path("config", "deletion-policy")
	if _, err := p.Kubectl("", "apply", "-k", policy); err != nil {
		t.Fatal(err)
	}
	await.Until(t, fixture.Patience, "the policy is in force", func() bool {
		_, err := p.Kubectl("", "-n", namespace, "delete", "merchant", "shop-16", "--dry-run=server")
		return err != nil
	})
	key := p.delivered(t, "shop-16")
	p.remove(t, "shop-16")
	refused := p.sync(t, "Remove a merchant that is not Closed")
	p.answers(t, key, http.StatusUnauthorized)
	forgotten := p.becomesReady(t)
	state := p.merchant(t, "shop-16").Spec.State
	p.setMerchant(t, "shop-17", "state: Closed")
	p.mustSync(t, "Close a merchant")
	p.remove(t, "shop-17")
	closed := p.sync(t, "Remove a merchant that is Closed")
	await.Until(t, fixture.Patience, "the Merchant is gone", func() bool { return p.gone(t, "shop-17", &v1alpha1.Merchant{}) })
	if _, err := p.Kubectl("", "delete", "-k", policy); err != nil {
		t.Fatal(err)
	}
	return []line{
		{"a Merchant is removed, with its ApiKey, against the [deletion policy](merchant.md#deletion)", refused, "the key gets 401, for good; the Merchant stays"},
		{"the retry after that", forgotten, fmt.Sprintf("**Flux has forgotten the Merchant**, which is still %s", state)},
		{"a Merchant is removed, which an earlier commit has closed", closed, "both are gone; the policy allows it"},
	}
}

func recoveries() []change {
	return []change{
		{"operator away", func(t *testing.T, p *pipeline) []line {
			if err := p.Stop("operator"); err != nil {
				t.Fatal(err)
			}
			key, leaked := p.delivered(t, "shop-19"), p.delivered(t, "shop-20")
			p.setKey(t, "shop-19", disabled)
			p.edit(t, "shop-20", `{trigger: "2026-11-21", overlapSeconds: 86400}`, `{trigger: leak, overlapSeconds: 0}`)
			away := p.sync(t, "Disable a key, rotate another")
			sees := fmt.Sprintf("both keys still work: %d, %d", p.use(t, key), p.use(t, leaked))
			if err := p.startOperator(); err != nil {
				t.Fatal(err)
			}
			p.answers(t, key, http.StatusUnauthorized)
			p.answers(t, leaked, http.StatusUnauthorized)
			p.answers(t, p.delivered(t, "shop-20"), http.StatusOK)
			return []line{
				{"an ApiKey with `state: Disabled`, and another is rotated, while the operator is away for the whole sync", away, sees},
				{"none; the operator is back", p.becomesReady(t), "the disabled key and the old one get 401"},
			}
		}},
		{"restore", restore},
	}
}

// restore loses everything but Git, as with a new cluster.
func restore(t *testing.T, p *pipeline) []line {
	const own = "c0e5dbd546cda2406ded78f9c2571b4e85cf8e4d9eafb7e87e39523272acc2d1" // of "external-key-external-key-external-key"
	p.edit(t, "shop-21", "  delivery: {secretName: shop-21-till-key}\n  rotation: {trigger: \"2026-11-21\", overlapSeconds: 86400}\n", "  keyDigest: "+own+"\n")
	p.mustSync(t, "Bring a key")
	old := p.delivered(t, "shop-22")
	if err := p.Stop("operator"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []client.ObjectList{&v1alpha1.ApiKeyList{}, &v1alpha1.MerchantList{}} {
		p.lose(t, namespace, kind)
	}
	for _, name := range []string{namespace, kubetest.CredentialsNamespace} {
		for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
			p.lose(t, name, kind)
		}
	}
	if err := p.startOperator(); err != nil {
		t.Fatal(err)
	}
	result := p.flux.Sync(t, merchants)
	p.answers(t, old, http.StatusUnauthorized)
	p.answers(t, p.delivered(t, "shop-22"), http.StatusOK)
	p.answers(t, "external-key-external-key-external-key", http.StatusOK)
	return []line{{"none; everything but Git is lost", result, "all keys are new, in their Secrets, and the old ones get 401; a `keyDigest` is accepted as before"}}
}
