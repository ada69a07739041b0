package merchants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func merchant() *v1alpha1.Merchant {
	return &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme Coffee",
			State:       v1alpha1.MerchantActive,
			Currency:    v1alpha1.DefaultCurrency,
			IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24"},
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		},
	}
}

func TestDecide(t *testing.T) {
	for desc, tc := range map[string]struct {
		edit func(*v1alpha1.Merchant, *corev1.ConfigMap) *corev1.ConfigMap
		want bool // that it is written
	}{
		"published": {edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap { return c }},
		"somebody added a label": {edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Labels["team"] = "payments"
			return c
		}},
		"not published": {want: true, edit: func(*v1alpha1.Merchant, *corev1.ConfigMap) *corev1.ConfigMap { return nil }},
		"the spec changed": {want: true, edit: func(m *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			m.Spec.State = v1alpha1.MerchantSuspended
			return c
		}},
		"somebody took the label": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Labels = nil
			return c
		}},
		"somebody added data": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Data["more"] = "x"
			return c
		}},
		"somebody added binary data": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.BinaryData = map[string][]byte{"more": {1}}
			return c
		}},
	} {
		t.Run(desc, func(t *testing.T) {
			m := merchant()
			configMap, err := published.EncodeMerchant("credentials", published.NewMerchantRecord(m))
			if err != nil {
				t.Fatal(err)
			}
			p, err := decide(facts{merchant: m, namespace: "credentials", configMap: tc.edit(m, configMap)})
			if err != nil || (p.publish != nil) != tc.want {
				t.Fatalf("decide: write %t, %v; want %t", p.publish != nil, err, tc.want)
			}
			if p.publish == nil {
				return
			}
			record, err := published.DecodeMerchant(p.publish)
			if err != nil || record.State != m.Spec.State || p.publish.Namespace != "credentials" {
				t.Errorf("writes %+v, %v", record, err)
			}
		})
	}
}

// A published object that is being deleted is named by its kind, and there is no other name to choose for it.
func TestOutcome_Ending(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	ended := metav1.ObjectMeta{Name: "x", DeletionTimestamp: &since}
	for want, ending := range map[string]client.Object{
		"ConfigMap x of the credentials namespace": &corev1.ConfigMap{ObjectMeta: ended},
		"Secret x of the credentials namespace":    &corev1.Secret{ObjectMeta: ended},
	} {
		got := outcomeFor(facts{merchant: merchant(), ending: ending, now: since.Add(time.Hour)}).Message
		if !strings.HasPrefix(got, want) || strings.Contains(got, "choose another") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What the data plane would not understand is not written over what it does.
func TestDecide_Unpublishable(t *testing.T) {
	m := merchant()
	m.Spec.IPAllowlist = []v1alpha1.IPBlock{"everyone"}
	if p, err := decide(facts{merchant: m, namespace: "credentials"}); err == nil || p.publish != nil {
		t.Errorf("decide: write %t, %v", p.publish != nil, err)
	}
}

// A Merchant that a newer operator revoked stays revoked, and its status says so.
func TestDecide_RevokedByANewerOperator(t *testing.T) {
	m := merchant()
	m.Spec.DisplayName = "Another name"
	f := facts{merchant: m, namespace: "credentials", revocation: published.Revocation{Revoked: true, RevokedBy: 2}}
	p, err := decide(f)
	if err != nil {
		t.Fatal(err)
	}
	record, err := published.DecodeMerchant(p.publish)
	if err != nil || record.Revocation != f.revocation || record.DisplayName != m.Spec.DisplayName {
		t.Errorf("publishes %+v, %v", record, err)
	}
	if outcome := outcomeFor(f); outcome.Reason != v1alpha1.ReasonNewerVersion {
		t.Errorf("the outcome is %+v", outcome)
	}
}

// An older operator narrows the addresses in a record of a newer one, and widens nothing.
func TestDecide_NewerRecordIsNarrowed(t *testing.T) {
	const later = `{"version": 2, "merchantID": %q, "namespace": "shops", "name": "acme", "state": "Active",
		"ipAllowlist": ["203.0.113.0/24"], "ipAllowlistMode": %q, "rateLimit": 50}`
	for name, test := range map[string]struct {
		mode, specMode v1alpha1.IPAllowlistMode
		spec, want     []v1alpha1.IPBlock
		wantMode       v1alpha1.IPAllowlistMode
	}{
		"the same":             {"Report", "Report", []v1alpha1.IPBlock{"203.0.113.0/24"}, nil, ""},
		"fewer addresses":      {"Enforce", "Enforce", []v1alpha1.IPBlock{"203.0.113.7"}, []v1alpha1.IPBlock{"203.0.113.7"}, "Enforce"},
		"more addresses":       {"Enforce", "Enforce", []v1alpha1.IPBlock{"203.0.0.0/16"}, nil, ""},
		"all addresses":        {"Enforce", "Enforce", nil, nil, ""},
		"enforced from now on": {"Report", "Enforce", []v1alpha1.IPBlock{"203.0.113.0/24"}, []v1alpha1.IPBlock{"203.0.113.0/24"}, "Enforce"},
		"reported from now on": {"Enforce", "Report", []v1alpha1.IPBlock{"203.0.113.0/24"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := merchant()
			m.Spec.IPAllowlist, m.Spec.IPAllowlistMode = test.spec, test.specMode
			id := published.ID(m.UID)
			f := facts{merchant: m, namespace: "credentials", newer: true, configMap: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: published.MerchantName(id)},
				Data:       map[string]string{"merchant.json": fmt.Sprintf(later, id, test.mode)},
			}}
			p, err := decide(f)
			if err != nil || (p.publish == nil) != (test.want == nil) {
				t.Fatalf("publishes %v, %v", p.publish, err)
			}
			if p.publish == nil {
				return
			}
			got, err := published.DecodeMerchantEnvelope(p.publish)
			if err != nil || !slices.Equal(got.IPAllowlist, test.want) || got.IPAllowlistMode != test.wantMode || got.Revoked {
				t.Errorf("publishes %+v, %v", got, err)
			}
		})
	}
}

// A Merchant that asks for more than the platform allows gets the platform's maximum, and its status says so.
func TestDecide_RateLimitAboveThePlatformsMaximum(t *testing.T) {
	const published50, published10 = "50 per second, 100 at once", "10 per second, 20 at once"
	for name, test := range map[string]struct {
		maximum v1alpha1.RateLimit
		want    string
		reduced bool
	}{
		"no maximum":  {v1alpha1.RateLimit{}, published50, false},
		"at it":       {v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100}, published50, false},
		"above both":  {v1alpha1.RateLimit{RequestsPerSecond: 10, Burst: 20}, published10, true},
		"above one":   {v1alpha1.RateLimit{RequestsPerSecond: 1000, Burst: 20}, "50 per second, 20 at once", true},
		"only a rate": {v1alpha1.RateLimit{RequestsPerSecond: 10}, "10 per second, 100 at once", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{merchant: merchant(), namespace: "credentials", maximum: test.maximum}
			p, err := decide(f)
			if err != nil {
				t.Fatal(err)
			}
			record, err := published.DecodeMerchant(p.publish)
			if got := fmt.Sprintf("%d per second, %d at once", record.RateLimit.RequestsPerSecond, record.RateLimit.Burst); err != nil || got != test.want {
				t.Errorf("publishes %s, %v; want %s", got, err, test.want)
			}
			status := newStatus(f, outcomeFor(f))
			condition := meta.FindStatusCondition(status.Conditions, v1alpha1.RateLimitReducedCondition)
			if reduced := condition != nil && condition.Status == metav1.ConditionTrue; reduced != test.reduced {
				t.Errorf("the condition is %+v", condition)
			}
			if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ReadyCondition) {
				t.Errorf("the Merchant is not Ready: %+v", status.Conditions)
			}
			f.maximum, f.merchant.Status = v1alpha1.RateLimit{}, status
			if later := newStatus(f, outcomeFor(f)); meta.FindStatusCondition(later.Conditions, v1alpha1.RateLimitReducedCondition) != nil {
				t.Error("the condition stays when the maximum is raised")
			}
		})
	}
}

// What is published first and alone, whatever hinders the rest.
func TestRestricted(t *testing.T) {
	const a, b = v1alpha1.IPBlock("203.0.113.0/24"), v1alpha1.IPBlock("198.51.100.0/24")
	type settings struct {
		state v1alpha1.MerchantState
		mode  v1alpha1.IPAllowlistMode
		list  []v1alpha1.IPBlock
	}
	const active, suspended, enforce, report = v1alpha1.MerchantActive, v1alpha1.MerchantSuspended, v1alpha1.IPAllowlistEnforce, v1alpha1.IPAllowlistReport
	for name, test := range map[string]struct{ published, spec, want settings }{
		"nothing":                        {settings{active, enforce, nil}, settings{active, enforce, nil}, settings{}},
		"a suspension":                   {settings{active, enforce, nil}, settings{suspended, enforce, nil}, settings{suspended, enforce, nil}},
		"the end of one":                 {settings{suspended, enforce, nil}, settings{active, enforce, nil}, settings{}},
		"a first allowlist":              {settings{active, enforce, nil}, settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a}}},
		"a narrower one":                 {settings{active, enforce, []v1alpha1.IPBlock{a, b}}, settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a}}},
		"another one":                    {settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{b}}, settings{active, enforce, []v1alpha1.IPBlock{b}}},
		"a wider one":                    {settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a, b}}, settings{}},
		"none any more":                  {settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, nil}, settings{}},
		"one that is enforced":           {settings{active, report, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a}}},
		"one that is enforced and wider": {settings{active, report, []v1alpha1.IPBlock{a}}, settings{active, enforce, []v1alpha1.IPBlock{a, b}}, settings{active, enforce, []v1alpha1.IPBlock{a, b}}},
		"one that is reported":           {settings{active, enforce, []v1alpha1.IPBlock{a, b}}, settings{active, report, []v1alpha1.IPBlock{a}}, settings{}},
		"a suspension, and a wider one":  {settings{active, enforce, []v1alpha1.IPBlock{a}}, settings{suspended, enforce, nil}, settings{suspended, enforce, []v1alpha1.IPBlock{a}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := merchant()
			set := func(s settings) {
				spec.Spec.State, spec.Spec.IPAllowlistMode, spec.Spec.IPAllowlist = s.state, s.mode, s.list
			}
			set(test.published)
			configMap, err := published.EncodeMerchant("credentials", published.NewMerchantRecord(spec))
			if err != nil {
				t.Fatal(err)
			}
			set(test.spec)
			spec.Spec.DisplayName = "what does not restrict"
			var got settings
			if restricted := restrictedConfigMap(configMap, spec); restricted != nil {
				record, err := published.DecodeMerchant(restricted)
				if err != nil || record.DisplayName == spec.Spec.DisplayName {
					t.Errorf("published: %+v, %v", record, err)
				}
				got = settings{record.State, record.IPAllowlistMode, record.IPAllowlist}
			}
			if got.state != test.want.state || got.mode != test.want.mode || !slices.Equal(got.list, test.want.list) {
				t.Errorf("published: %+v, want %+v", got, test.want)
			}
		})
	}
}
