//go:build gitops

package gitops

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/fluxtest"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

const disabled = "state: Disabled"

func rotations() []change {
	return []change{
		{"rotate", func(s step) []line {
			old := s.delivered("shop-01")
			s.edit("shop-01", "2026-11-21", "2026-11-22")
			result := s.sync("Rotate")
			current := s.delivered("shop-01")
			if current == old {
				s.T.Error("the Kustomization is Ready, and the Secret still has the old key")
			}
			s.answers(current, http.StatusOK)
			return []line{{"`rotation.trigger` changes", result, fmt.Sprintf("the Secret has the new key; the old one gets %d until its overlap ends", s.use(old))}}
		}},
		{"rotate a leaked key", func(s step) []line {
			old := s.delivered("shop-02")
			s.edit("shop-02", `{trigger: "2026-11-21", overlapSeconds: 86400}`, `{trigger: leak, overlapSeconds: 0}`)
			result := s.sync("Rotate a leaked key")
			s.answers(old, http.StatusUnauthorized)
			s.answers(s.delivered("shop-02"), http.StatusOK)
			return []line{{"the same with `overlapSeconds: 0`", result, "the old key gets 401, the new one 200"}}
		}},
		{"rotate over HTTP", func(s step) []line {
			s.edit("shop-03", "permissions: [create, read, cancel]", "permissions: [create, read, cancel, rotate]")
			s.mustSync("Permit a key to rotate itself")
			fresh := s.rotate(s.delivered("shop-03"))
			await.Until(s.T, fixture.Patience, "the status has the rotation", func() bool { return s.apiKey("shop-03").Status.KeyGeneration == 2 })
			result := s.flux.Sync(s.T, merchants)
			s.answers(fresh, http.StatusOK)
			return []line{{"none; the merchant rotates over HTTP", result, "the merchant's key gets 200: nothing is undone"}}
		}},
		{"ten syncs", tenSyncs},
	}
}

// rotate replaces a key over HTTP as soon as the API knows that it may, and returns the new one.
func (s step) rotate(key string) (fresh string) {
	s.T.Helper()
	await.Until(s.T, fixture.Patience, "the API permits the rotation", func() bool {
		answer, err := fixture.Call(http.DefaultClient, s.api.Public, http.MethodPost, fixture.Rotate, key, "")
		if err != nil || answer.Status != http.StatusOK && answer.Status != http.StatusForbidden {
			s.T.Fatalf("rotate: %d, %v", answer.Status, err)
		}
		fresh = answer.Text("fullKey")
		return answer.Status == http.StatusOK
	})
	return fresh
}

// tenSyncs looks for requests that write, of anybody, but for what Flux keeps about itself.
func tenSyncs(s step) []line {
	s.T.Helper()
	if _, err := s.audit.Requests(); err != nil {
		s.T.Fatal(err)
	}
	var result fluxtest.Result
	for range 10 {
		if result = s.flux.Sync(s.T, merchants); !result.Ready {
			s.T.Fatalf("not Ready: %+v", result)
		}
	}
	all, err := s.audit.Requests()
	if err != nil {
		s.T.Fatal(err)
	}
	if len(all) == 0 {
		s.T.Fatal("the audit log does not have the status of the Kustomization")
	}
	var writes []kubetest.Request
	for _, w := range all {
		bookkeeping := w.Group == "kustomize.toolkit.fluxcd.io" || w.User == fluxtest.User && w.Resource == "events"
		if !bookkeeping && !w.DryRun && w.Resource != "leases" {
			writes = append(writes, w)
		}
	}
	if len(writes) > 0 {
		s.T.Errorf("ten syncs without a change have written: %+v", writes)
	}
	return []line{{"none, ten times", result, fmt.Sprintf("%d writes by anybody, but for the status of the Kustomization", len(writes))}}
}

func states() []change {
	return []change{
		{"disable", func(s step) []line {
			s.setKey("shop-04", disabled)
			result := s.sync("Disable a key")
			s.answers(s.delivered("shop-04"), http.StatusUnauthorized)
			return []line{{"an ApiKey with `state: Disabled`", result, "the key gets 401; " + s.readiness("shop-04-till")}}
		}},
		{"enable", func(s step) []line {
			s.unset("shop-04", disabled)
			result := s.sync("Enable a key")
			s.answers(s.delivered("shop-04"), http.StatusOK)
			return []line{{"`state: Disabled` is removed", result, "the same key gets 200"}}
		}},
		{"suspend", func(s step) []line {
			s.setMerchant("shop-05", "state: Suspended")
			result := s.sync("Suspend a merchant")
			s.answers(s.delivered("shop-05"), http.StatusForbidden)
			return []line{{"a Merchant with `state: Suspended`", result, "its key gets 403; " + s.readiness("shop-05-till")}}
		}},
		{"close", func(s step) []line {
			s.setMerchant("shop-06", "state: Closed")
			result := s.sync("Close a merchant")
			s.answers(s.delivered("shop-06"), http.StatusForbidden)
			return []line{{"a Merchant with `state: Closed`", result, "its key gets 403; " + s.readiness("shop-06-till")}}
		}},
		{"expire", func(s step) []line {
			const past = `expiresAt: "2026-01-01T00:00:00Z"`
			s.setKey("shop-07", past)
			result := s.sync("Expire a key")
			s.answers(s.delivered("shop-07"), http.StatusUnauthorized)
			sees := "the key gets 401; " + s.readiness("shop-07-till")
			s.unset("shop-07", past)
			s.mustSync("Do not expire a key")
			return []line{{"an `expiresAt` that is past", result, sees}}
		}},
	}
}

func allowlists() []change {
	return []change{
		{"report an allowlist", func(s step) []line {
			key := s.delivered("shop-08")
			s.setMerchant("shop-08", "ipAllowlistMode: Report")
			s.setMerchant("shop-08", "ipAllowlist: [203.0.113.0/24]")
			result := s.sync("Report an allowlist")
			s.answers(key, http.StatusOK)
			var block string
			await.Until(s.T, fixture.Patience, "the status shows the address of the till", func() bool {
				if allowlist := s.merchant("shop-08").Status.Allowlist; allowlist != nil && len(allowlist.Refused) > 0 {
					block = allowlist.Refused[0].Block
				}
				return block != ""
			})
			return []line{{"an `ipAllowlist` that misses a till, with `ipAllowlistMode: Report`", result, fmt.Sprintf("the till gets 200; `status.allowlist.refused` has %s", block)}}
		}},
		{"enforce an allowlist", func(s step) []line {
			s.edit("shop-08", "Report", "Enforce")
			result := s.sync("Enforce an allowlist")
			s.answers(s.delivered("shop-08"), http.StatusUnauthorized)
			return []line{{"the same with `Enforce`", result, "the till gets 401; " + s.readiness("shop-08-till")}}
		}},
	}
}

func mistakes() []change {
	return []change{
		{"refused manifest", func(s step) []line {
			s.edit("shop-09", "{name: shop-09}", "{name: shop-10}")
			s.setKey("shop-11", disabled)
			result := s.sync("Move a key, and disable another")
			sees := fmt.Sprintf("**nothing of the commit is applied**: a key that it disables too gets %d", s.use(s.delivered("shop-11")))
			s.git("revert", "--no-edit", "HEAD")
			s.git("push", "--quiet", "origin", "HEAD:main")
			s.becomesReady()
			return []line{{"a manifest that the API refuses, among others", result, sees}}
		}},
		{"merchant that does not exist", func(s step) []line {
			s.write("kiosk", "apiVersion: merchant-operator.io/v1alpha1\nkind: ApiKey\nmetadata: {name: kiosk, namespace: shops}\nspec:\n  merchantRef: {name: shop-012}\n")
			result := s.sync("Add a key")
			sees := s.readiness("kiosk")
			s.remove("kiosk")
			s.mustSync("Remove the key")
			return []line{{"an ApiKey of a Merchant that does not exist", result, "everything else is applied; " + sees}}
		}},
		{"taken Secret", func(s step) []line {
			if _, err := s.Kubectl("", "--namespace", namespace, "create", "secret", "generic", "taken"); err != nil {
				s.T.Fatal(err)
			}
			s.write("stand", "apiVersion: merchant-operator.io/v1alpha1\nkind: ApiKey\nmetadata: {name: stand, namespace: shops}\nspec:\n  merchantRef: {name: shop-12}\n  delivery: {secretName: taken}\n")
			result := s.sync("Add a key")
			sees := s.readiness("stand")
			s.remove("stand")
			s.mustSync("Remove the key")
			return []line{{"an ApiKey whose Secret belongs to somebody else", result, "everything else is applied; " + sees}}
		}},
		{"disable by hand", func(s step) []line {
			s.setKey("shop-13", "state: Active")
			s.mustSync("Write the state")
			return []line{
				s.disableByHand("shop-12", http.StatusUnauthorized, "none; `kubectl merchant keys disable --force`", "keys", "disable", "shop-12-till", "--force"),
				s.disableByHand("shop-13", http.StatusOK, "the same, and Git has `state: Active`", "keys", "disable", "shop-13-till", "--force"),
				s.disableByHand("shop-18", http.StatusOK, "none; `kubectl patch` to `state: Disabled`"),
			}
		}},
		{"take over", takeOver},
	}
}

// takeOver moves an ApiKey to Git that was issued and rotated by hand. Its manifest is as it was issued, without the trigger.
func takeOver(s step) []line {
	s.T.Helper()
	for _, command := range [][]string{{"issue", "stall", "--merchant", "shop-12"}, {"rotate", "stall", "--trigger", "INC-4711"}} {
		if err := s.plugin(append([]string{"keys"}, command...)...); err != nil {
			s.T.Fatal(err)
		}
	}
	s.write("stall", "apiVersion: merchant-operator.io/v1alpha1\nkind: ApiKey\nmetadata: {name: stall, namespace: shops}\nspec:\n  merchantRef: {name: shop-12}\n  permissions: [create, read, cancel]\n")
	const warning = "Only the cluster has a value for spec.rotation.trigger"
	if err := s.plugin("plan", "-f", s.manifest("stall")); err == nil || !strings.Contains(err.Error(), warning) {
		s.T.Errorf("the plan does not say %q: %v", warning, err)
	}
	result := s.sync("Take over a key")
	var key v1alpha1.ApiKey
	await.Until(s.T, fixture.Patience, "the key is replaced", func() bool { s.get("stall", &key); return key.Status.KeyGeneration == 3 })
	s.remove("stall")
	s.mustSync("Remove the key")
	return []line{{"an ApiKey that `kubectl merchant` issued and rotated, without its trigger", result, "**the key is replaced once more**; `kubectl merchant plan` says so before"}}
}

// disableByHand disables a key as in an incident, with the plugin or without, and looks at what the next sync makes of it.
func (s step) disableByHand(shop string, after int, commit string, plugin ...string) line {
	s.T.Helper()
	key := s.delivered(shop)
	var err error
	if len(plugin) > 0 {
		err = s.plugin(plugin...)
	} else {
		_, err = s.Kubectl("", "--namespace", namespace, "patch", "apikey", shop+"-till", "--type=merge", "--patch", `{"spec":{"state":"Disabled"}}`)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.answers(key, http.StatusUnauthorized)
	result := s.flux.Sync(s.T, merchants)
	s.answers(key, after)
	s.flux.Sync(s.T, merchants)
	if got := s.use(key); got != after {
		s.T.Errorf("the key gets %d after another sync, and got %d", got, after)
	}
	return line{commit, result, fmt.Sprintf("the key gets 401, and %d after the next sync", after)}
}

func deletions() []change {
	return []change{
		{"prune a key", func(s step) []line {
			key := s.delivered("shop-14")
			s.removeKey("shop-14")
			result := s.sync("Remove a key")
			s.answers(key, http.StatusUnauthorized)
			return []line{{"an ApiKey is removed", result, "the key gets 401 permanently"}}
		}},
		{"prune a merchant", func(s step) []line {
			key := s.delivered("shop-15")
			s.remove("shop-15")
			result := s.sync("Remove a merchant")
			s.answers(key, http.StatusUnauthorized)
			await.Until(s.T, fixture.Patience, "the Merchant is gone", func() bool { return s.gone("shop-15", &v1alpha1.Merchant{}) })
			return []line{{"a Merchant is removed, with its ApiKey", result, "both are gone; the key gets 401 permanently"}}
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
		{"a Merchant is removed, with its ApiKey, against the [deletion policy](merchant.md#deletion)", refused, "the key gets 401 permanently; the Merchant stays"},
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
