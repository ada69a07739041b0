package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/objects"
)

// beforePatch does something between the read of an object and its first patch.
type beforePatch struct {
	client.Client

	do      func()
	patches int
	left    time.Duration // of the first one's context
}

// Patch counts the calls.
func (b *beforePatch) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if b.patches++; b.patches == 1 {
		deadline, _ := ctx.Deadline()
		b.left = time.Until(deadline)
		b.do()
	}
	return b.Client.Patch(ctx, object, patch, options...)
}

// The operator and the dispatcher write the status at any time. That is no reason to refuse a form; another spec is.
func TestEdit_ChangedMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.grant(user(alice), []string{"get", "editallowlist"})
	browser := f.signedIn(alice)
	for _, test := range []struct {
		name   string
		write  func(*v1alpha1.Merchant) error
		status int
		want   []v1alpha1.IPBlock
	}{
		{"status", func(m *v1alpha1.Merchant) error {
			m.Status.MerchantID = "mer_abcdefgh2345"
			return cluster.Client.Status().Update(t.Context(), m)
		}, http.StatusOK, []v1alpha1.IPBlock{"127.0.0.1", "203.0.113.9"}},
		{"spec", func(m *v1alpha1.Merchant) error {
			m.Spec.IPAllowlist = []v1alpha1.IPBlock{"198.51.100.1"}
			return cluster.Client.Update(t.Context(), m)
		}, http.StatusUnprocessableEntity, []v1alpha1.IPBlock{"198.51.100.1"}},
	} {
		m := f.merchant(test.name)
		writer := &beforePatch{Client: f.objects.Client, do: func() {
			if err := test.write(m); err != nil {
				t.Error(err)
			}
		}}
		f.objects.Client = writer
		page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/"+test.name+"/allowlist", url.Values{"generation": {"1"}, "allowlist": {"127.0.0.1 203.0.113.9"}})
		f.objects.Client = writer.Client
		if page.Status != test.status || !strings.Contains(page.Text, "203.0.113.9") || strings.Contains(page.Text, "Somebody has changed") != (test.status != http.StatusOK) {
			t.Errorf("another %s: %d %s", test.name, page.Status, page.Text)
		}
		var got v1alpha1.Merchant
		if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(m), &got); err != nil || !slices.Equal(got.Spec.IPAllowlist, test.want) {
			t.Errorf("another %s: %v, %v; want %v", test.name, got.Spec.IPAllowlist, err, test.want)
		}
		if test.status == http.StatusOK && writer.patches != 2 {
			t.Errorf("%d patches, want a conflict and another try", writer.patches)
		}
	}
}

// A change may take as long as a request: a slow API server is no reason to tell people that it is unavailable.
func TestEdit_SlowKubernetes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.keys.ForceTimeout = time.Millisecond
	f.apiKey(f.merchant("acme"), "till-1")
	f.grant(user(alice), []string{"get", "editallowlist", "issuekeys"})
	browser := f.signedIn(alice)
	for path, form := range map[string]url.Values{
		"/allowlist":           {"generation": {"1"}, "allowlist": {"127.0.0.1"}},
		"/keys/till-1/disable": {"name": {"till-1"}},
	} {
		writer := &beforePatch{Client: f.objects.Client, do: func() {}}
		f.objects.Client = writer
		page := browser.Post(t, f.URL+"/merchants/"+f.namespace+"/acme"+path, form)
		f.objects.Client = writer.Client
		if page.Status != http.StatusOK || writer.left <= 2*objects.Timeout {
			t.Errorf("%s: %d, after a patch with %s left", path, page.Status, writer.left)
		}
	}
}
