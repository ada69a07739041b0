package merchants

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestScreen_One(t *testing.T) {
	now := time.Now()
	merchant := &v1alpha1.Merchant{}
	merchant.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	merchant.Status.Webhook = &v1alpha1.WebhookStatus{Dead: 1}
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: "198.51.100.0/24", Requests: 1}}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, nil, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 pending, 1 dead letter\n", "198.51.100.0/24, 1 request, "} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
		}
	}
}

// What only a key's own list refuses is said of the key: no change of the merchant's list would allow it.
func TestScreen_KeyAllowlistRefuses(t *testing.T) {
	now := time.Now()
	key := v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Name: "till-1", UID: "till"}}
	key.Status.KeyID = published.ID(key.UID)
	merchant := &v1alpha1.Merchant{}
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", KeyID: published.ID(key.UID), Requests: 2, LastSeen: metav1.NewTime(now.Add(-5 * time.Minute))},
	}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, []v1alpha1.ApiKey{key}, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"198.51.100.0/24, 2 requests, the last 5m ago, not on the own list of key till-1", "till-1: add the networks that you know to spec.ipAllowlist of the ApiKey"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
		}
	}
	if unwanted := "Allowlist: add"; strings.Contains(screen.String(), unwanted) {
		t.Errorf("%q is in\n%s", unwanted, screen.String())
	}
}

func TestScreen_RefusedAddresses(t *testing.T) {
	now := time.Now()
	merchant := &v1alpha1.Merchant{}
	merchant.Spec.IPAllowlist, merchant.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{
		{Block: "198.51.100.0/24", Requests: 212, LastSeen: metav1.NewTime(now.Add(-5 * time.Minute))},
	}}
	var screen strings.Builder
	if err := newMerchantStatus(merchant, nil, now).writeText(&screen, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"203.0.113.0/24 (report only)", "198.51.100.0/24, 212 requests, the last 5m ago", "add the networks that you know to spec.ipAllowlist"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not in\n%s", want, screen.String())
		}
	}
}
