//go:build gitops

package gitops

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/fluxtest"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

const disabled = "state: Disabled"

func rotations() []change {
	return []change{
		{"rotate", func(t *testing.T, p *pipeline) []line {
			old := p.delivered(t, "shop-01")
			p.edit(t, "shop-01", "2026-11-21", "2026-11-22")
			result := p.sync(t, "Rotate")
			current := p.delivered(t, "shop-01")
			if current == old {
				t.Error("the Kustomization is Ready, and the Secret still has the old key")
			}
			p.answers(t, current, http.StatusOK)
			return []line{{"`rotation.trigger` changes", result, fmt.Sprintf("the Secret has the new key; the old one gets %d until its overlap ends", p.use(t, old))}}
		}},
		{"rotate a leaked key", func(t *testing.T, p *pipeline) []line {
			old := p.delivered(t, "shop-02")
			p.edit(t, "shop-02", `{trigger: "2026-11-21", overlapSeconds: 86400}`, `{trigger: leak, overlapSeconds: 0}`)
			result := p.sync(t, "Rotate a leaked key")
			p.answers(t, old, http.StatusUnauthorized)
			p.answers(t, p.delivered(t, "shop-02"), http.StatusOK)
			return []line{{"the same with `overlapSeconds: 0`", result, "the old key gets 401, the new one 200"}}
		}},
		{"rotate over HTTP", func(t *testing.T, p *pipeline) []line {
			answer, err := fixture.Call(http.DefaultClient, p.api.Public, http.MethodPost, fixture.Rotate, p.delivered(t, "shop-03"), "")
			if err != nil || answer.Status != http.StatusOK {
				t.Fatalf("rotate: %d, %v", answer.Status, err)
			}
			await.Until(t, fixture.Patience, "the status has the rotation", func() bool { return p.apiKey(t, "shop-03").Status.KeyGeneration == 2 })
			result := p.flux.Sync(t, merchants)
			p.answers(t, answer.Text("fullKey"), http.StatusOK)
			return []line{{"none; the merchant rotates over HTTP", result, "the merchant's key gets 200: nothing is undone"}}
		}},
		{"ten syncs", tenSyncs},
	}
}

// tenSyncs looks for requests that write, of anybody, but for what Flux keeps about itself.
func tenSyncs(t *testing.T, p *pipeline) []line {
	t.Helper()
	if _, err := p.audit.Requests(); err != nil {
		t.Fatal(err)
	}
	var result fluxtest.Result
	for range 10 {
		if result = p.flux.Sync(t, merchants); !result.Ready {
			t.Fatalf("not Ready: %+v", result)
		}
	}
	all, err := p.audit.Requests()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("the audit log does not have the status of the Kustomization")
	}
	var writes []kubetest.Request
	for _, w := range all {
		bookkeeping := w.Group == "kustomize.toolkit.fluxcd.io" || w.User == fluxtest.User && w.Resource == "events"
		if !bookkeeping && !w.DryRun && w.Resource != "leases" {
			writes = append(writes, w)
		}
	}
	if len(writes) > 0 {
		t.Errorf("ten syncs without a change have written: %+v", writes)
	}
	return []line{{"none, ten times", result, fmt.Sprintf("%d writes by anybody, but for the status of the Kustomization", len(writes))}}
}

func states() []change {
	return []change{
		{"disable without healthCheckExprs", func(t *testing.T, p *pipeline) []line {
			restore := p.flux.Without(t, merchants, "healthCheckExprs")
			p.setKey(t, "shop-04", disabled)
			result := p.sync(t, "Disable a key")
			p.answers(t, p.delivered(t, "shop-04"), http.StatusUnauthorized)
			if again := p.flux.Sync(t, merchants); again.Ready {
				t.Errorf("a retry is Ready: %+v", again)
			}
			restore()
			p.unset(t, "shop-04", disabled)
			p.mustSync(t, "Enable a key")
			return []line{{"an ApiKey with `state: Disabled`, without `healthCheckExprs`", result, "the key gets 401; each retry fails"}}
		}},
		{"disable", func(t *testing.T, p *pipeline) []line {
			p.setKey(t, "shop-04", disabled)
			result := p.sync(t, "Disable a key")
			p.answers(t, p.delivered(t, "shop-04"), http.StatusUnauthorized)
			return []line{{"the same with `healthCheckExprs`", result, "the key gets 401; " + p.readiness(t, "shop-04-till")}}
		}},
		{"enable", func(t *testing.T, p *pipeline) []line {
			p.unset(t, "shop-04", disabled)
			result := p.sync(t, "Enable a key")
			p.answers(t, p.delivered(t, "shop-04"), http.StatusOK)
			return []line{{"`state: Disabled` is removed", result, "the same key gets 200"}}
		}},
		{"suspend", func(t *testing.T, p *pipeline) []line {
			p.setMerchant(t, "shop-05", "state: Suspended")
			result := p.sync(t, "Suspend a merchant")
			p.answers(t, p.delivered(t, "shop-05"), http.StatusForbidden)
			return []line{{"a Merchant with `state: Suspended`", result, "its key gets 403; " + p.readiness(t, "shop-05-till")}}
		}},
		{"close", func(t *testing.T, p *pipeline) []line {
			p.setMerchant(t, "shop-06", "state: Closed")
			result := p.sync(t, "Close a merchant")
			p.answers(t, p.delivered(t, "shop-06"), http.StatusForbidden)
			return []line{{"a Merchant with `state: Closed`", result, "its key gets 403; " + p.readiness(t, "shop-06-till")}}
		}},
		{"expire", func(t *testing.T, p *pipeline) []line {
			const past = `expiresAt: "2026-01-01T00:00:00Z"`
			p.setKey(t, "shop-07", past)
			result := p.sync(t, "Expire a key")
			p.answers(t, p.delivered(t, "shop-07"), http.StatusUnauthorized)
			sees := "the key gets 401; " + p.readiness(t, "shop-07-till")
			p.unset(t, "shop-07", past)
			p.mustSync(t, "Do not expire a key")
			return []line{{"an `expiresAt` that is past", result, sees}}
		}},
	}
}

func allowlists() []change {
	return []change{
		{"report an allowlist", func(t *testing.T, p *pipeline) []line {
			key := p.delivered(t, "shop-08")
			p.setMerchant(t, "shop-08", "ipAllowlistMode: Report")
			p.setMerchant(t, "shop-08", "ipAllowlist: [203.0.113.0/24]")
			result := p.sync(t, "Report an allowlist")
			p.answers(t, key, http.StatusOK)
			var block string
			await.Until(t, fixture.Patience, "the status shows the address of the till", func() bool {
				if allowlist := p.merchant(t, "shop-08").Status.Allowlist; allowlist != nil && len(allowlist.Refused) > 0 {
					block = string(allowlist.Refused[0].Block)
				}
				return block != ""
			})
			return []line{{"an `ipAllowlist` that misses a till, with `ipAllowlistMode: Report`", result, fmt.Sprintf("the till gets 200; `status.allowlist.refused` has %s", block)}}
		}},
		{"enforce an allowlist", func(t *testing.T, p *pipeline) []line {
			p.edit(t, "shop-08", "Report", "Enforce")
			result := p.sync(t, "Enforce an allowlist")
			p.answers(t, p.delivered(t, "shop-08"), http.StatusUnauthorized)
			return []line{{"the same with `Enforce`", result, "the till gets 401; " + p.readiness(t, "shop-08-till")}}
		}},
	}
}

func mistakes() []change {
	return []change{
		{"refused manifest", func(t *testing.T, p *pipeline) []line {
			p.edit(t, "shop-09", "{name: shop-09}", "{name: shop-10}")
			p.setKey(t, "shop-11", disabled)
			result := p.sync(t, "Move a key, and disable another")
			sees := fmt.Sprintf("**nothing of the commit is applied**: a key that it disables too gets %d", p.use(t, p.delivered(t, "shop-11")))
			p.git(t, "revert", "--no-edit", "HEAD")
			p.git(t, "push", "--quiet", "origin", "HEAD:main")
			p.becomesReady(t)
			return []line{{"a manifest that the API refuses, among others", result, sees}}
		}},
		{"merchant that does not exist", func(t *testing.T, p *pipeline) []line {
			p.write(t, "kiosk", "apiVersion: merchant-operator.io/v1alpha1\nkind: ApiKey\nmetadata: {name: kiosk, namespace: shops}\nspec:\n  merchantRef: {name: shop-012}\n")
			result := p.sync(t, "Add a key")
			sees := p.readiness(t, "kiosk")
			p.remove(t, "kiosk")
			p.mustSync(t, "Remove the key")
			return []line{{"an ApiKey of a Merchant that does not exist", result, "everything else is applied; " + sees}}
		}},
		{"disable by hand", func(t *testing.T, p *pipeline) []line {
			p.setKey(t, "shop-13", "state: Active")
			p.mustSync(t, "Write the state")
			return []line{
				p.disableByHand(t, "shop-12", http.StatusUnauthorized, "none; `kubectl merchant keys disable --force`", "keys", "disable", "shop-12-till", "--force"),
				p.disableByHand(t, "shop-13", http.StatusOK, "the same, and Git has `state: Active`", "keys", "disable", "shop-13-till", "--force"),
				p.disableByHand(t, "shop-18", http.StatusOK, "none; `kubectl patch` to `state: Disabled`"),
			}
		}},
	}
}

// disableByHand disables a key as in an incident, with the plugin or without, and looks at what the next sync makes of it.
func (p *pipeline) disableByHand(t *testing.T, shop string, after int, commit string, plugin ...string) line {
	t.Helper()
	key := p.delivered(t, shop)
	var err error
	if len(plugin) > 0 {
		err = p.plugin(t, plugin...)
	} else {
		_, err = p.Kubectl("", "--namespace", namespace, "patch", "apikey", shop+"-till", "--type=merge", "--patch", `{"spec":{"state":"Disabled"}}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.answers(t, key, http.StatusUnauthorized)
	result := p.flux.Sync(t, merchants)
	p.answers(t, key, after)
	p.flux.Sync(t, merchants)
	if got := p.use(t, key); got != after {
		t.Errorf("the key gets %d after another sync, and got %d", got, after)
	}
	return line{commit, result, fmt.Sprintf("the key gets 401, and %d after the next sync", after)}
}
