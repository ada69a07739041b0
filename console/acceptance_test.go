package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// accept has the API accept these keys of a merchant with this state.
func (f *fixture) accept(merchant v1alpha1.MerchantState, keys ...*v1alpha1.ApiKey) {
	var uids []string
	for _, key := range keys {
		uids = append(uids, string(key.UID))
	}
	respond := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respondAccepted(w, merchant, uids...) })
	f.accepted.Store(&respond)
}

// The page says of a key what is in force, whatever its spec wants and its status says.
func TestMerchantPage_Acceptance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "issuekeys", "rotatekeys"})
	browser, page := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	const refused, accepted, nobodyKnows = "Tills that use it are refused", "tills that use it are still accepted", "Nobody knows at the moment"
	disable := func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled }
	expire := func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = new(metav1.NewTime(time.Now().Add(-time.Hour))) }
	for i, test := range []struct {
		name     string
		edit     func(*v1alpha1.ApiKey)
		delete   bool
		status   string // reason of the condition Ready
		merchant v1alpha1.MerchantState
		accepted bool
		unknown  bool
		says     []string
		saysNot  []string
	}{
		{name: "works", merchant: "Active", accepted: true, saysNot: []string{refused, accepted, "Not in force", "whether this key is accepted"}},
		{name: "disabled", edit: disable, merchant: "Active", says: []string{refused, ">Switched off<"}, saysNot: []string{accepted, "Not in force"}},
		{name: "disabled, not in force", edit: disable, status: "Disabled", merchant: "Active", accepted: true, says: []string{accepted, ">Not in force yet<", "should not work any more"}, saysNot: []string{refused, "Switched off"}},
		{name: "disabled, unknown", edit: disable, status: "Disabled", unknown: true, says: []string{nobodyKnows, ">Unknown<"}, saysNot: []string{refused, accepted, "Switched off"}},
		{name: "works, unknown", unknown: true, says: []string{nobodyKnows, ">Unknown<"}, saysNot: []string{refused, ">Live<"}},
		{name: "enabled, not in force", merchant: "Active", says: []string{"This key is not accepted at the moment", ">Not ready yet<"}, saysNot: []string{">Live<"}},
		{name: "enabled, late status", status: "Disabled", merchant: "Active", accepted: true, says: []string{">Live<"}, saysNot: []string{refused, "Switched off"}},
		{name: "expired, not in force", edit: expire, status: "Expired", merchant: "Active", accepted: true, says: []string{accepted, "Its end was "}, saysNot: []string{refused, ">Expired<", "Expires "}},
		{name: "suspended in the status only", status: "MerchantSuspended", merchant: "Active", accepted: true, says: []string{">Live<"}, saysNot: []string{"Merchant suspended"}},
		{name: "suspended merchant", merchant: "Suspended", accepted: true, says: []string{"Merchant suspended"}, saysNot: []string{">Live<"}},
		{name: "deleted, not in force", delete: true, merchant: "Active", accepted: true, says: []string{accepted, "to be deleted"}, saysNot: []string{refused, "/rotate", "/enable"}},
		{name: "deleted", delete: true, merchant: "Active", says: []string{refused, "being deleted"}, saysNot: []string{accepted}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := f.apiKey(m, "till-"+strconv.Itoa(i))
			defer func() {
				k.Finalizers = nil
				_ = cluster.Client.Update(t.Context(), k)
				_ = client.IgnoreNotFound(cluster.Client.Delete(t.Context(), k))
			}()
			if test.edit != nil {
				test.edit(k)
			}
			k.Finalizers = []string{"merchant-operator.io/test"}
			if err := cluster.Client.Update(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			if test.status != "" {
				meta.SetStatusCondition(&k.Status.Conditions, metav1.Condition{Type: v1alpha1.UsableCondition, Status: metav1.ConditionFalse, Reason: test.status})
				if err := cluster.Client.Status().Update(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			if test.delete {
				if err := cluster.Client.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			if f.accept(test.merchant); test.accepted {
				f.accept(test.merchant, k)
			}
			if test.unknown {
				f.accepted.Store(&away)
			}
			text := browser.Get(t, page).Text
			row, _, _ := strings.Cut(text[max(0, strings.Index(text, `id="key-`+k.Name+`"`)):], "</details>")
			attention, _, _ := strings.Cut(text, "<div class=\"page\">")
			for _, want := range test.says {
				if !strings.Contains(row+attention, want) {
					t.Errorf("the page does not say %q:\n%s", want, row)
				}
			}
			for _, unwanted := range test.saysNot {
				if strings.Contains(row, unwanted) {
					t.Errorf("the page says %q:\n%s", unwanted, row)
				}
			}
		})
	}
}

// What is said of a suspended, closed or deleted Merchant is what is in force, too.
func TestMerchantPage_MerchantAcceptance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.merchant("acme")
	key := f.apiKey(m, "till-1")
	f.grant(user(alice), []string{"get"})
	browser, page := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	change := func(edit func(*v1alpha1.Merchant)) {
		t.Helper()
		now := f.stored(m)
		edit(now)
		if err := cluster.Client.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, text string) {
		t.Helper()
		if got := browser.Get(t, page).Text; !strings.Contains(got, text) {
			t.Errorf("%s: the page does not say %q:\n%s", what, text, got)
		}
	}
	change(func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
	f.accept(v1alpha1.MerchantActive, key)
	want("suspended, not in force", "suspended this merchant. That is not in force yet: its keys are still accepted")
	f.accept(v1alpha1.MerchantSuspended, key)
	want("suspended", "All its keys are refused until")
	change(func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantActive })
	want("resumed, not in force", "That is not in force yet: its keys are still refused")
	change(func(m *v1alpha1.Merchant) { m.Finalizers = []string{"merchant-operator.io/test"} })
	if err := cluster.Client.Delete(t.Context(), f.stored(m)); err != nil {
		t.Fatal(err)
	}
	defer change(func(m *v1alpha1.Merchant) { m.Finalizers = nil })
	f.accept(v1alpha1.MerchantActive, key)
	want("deleted, not in force", "deleted this merchant. That is not in force yet")
	f.accept(v1alpha1.MerchantActive)
	want("deleted", "deleted this merchant. All its keys are refused.")
}

// The form of a key that was deleted and created anew since the person saw it changes nothing.
func TestKeyForms_Replaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.keys.ForceTimeout = time.Millisecond
	m := f.merchant("acme")
	f.grant(user(alice), []string{"get", "issuekeys", "rotatekeys"})
	browser, page := f.signedIn(alice), f.URL+"/merchants/"+f.namespace+"/acme"
	for _, action := range []string{"disable", "enable", "delete", "rotate"} {
		t.Run(action, func(t *testing.T) {
			seen := f.apiKey(m, "till-"+action)
			form := browser.Get(t, page+"/keys/"+seen.Name+"/"+action)
			values := url.Values{"uid": {form.Hidden("uid")}, "name": {seen.Name}, "generation": {"2"}, "overlap": {"0"}}
			if values.Get("uid") != string(seen.UID) {
				t.Fatalf("the form names the UID %q", values.Get("uid"))
			}
			if err := cluster.Client.Delete(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
			anew := f.apiKey(m, seen.Name)
			answer := browser.Post(t, page+"/keys/"+seen.Name+"/"+action, values)
			if answer.Status != http.StatusConflict || !strings.Contains(answer.Text, "Nothing was changed") {
				t.Errorf("%d: %s", answer.Status, answer.Text)
			}
			var now v1alpha1.ApiKey
			if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(anew), &now); err != nil || now.UID != anew.UID || now.Generation != anew.Generation {
				t.Errorf("the new ApiKey was changed: %+v, %v", now.Spec, err)
			}
		})
	}
}

// An ApiKey that is created anew between the console's read and its write is not switched either.
func TestDisableKey_Replaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.keys.ForceTimeout = time.Millisecond
	m := f.merchant("acme")
	seen := f.apiKey(m, "till-1")
	if err := cluster.Client.Delete(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	anew := f.apiKey(m, "till-1")
	disable := func(key *v1alpha1.ApiKey) error {
		sent := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(url.Values{"name": {key.Name}}.Encode()))
		sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return f.keys.Disable(httptest.NewRecorder(), &web.Request{Request: sent, Merchant: m}, key)
	}
	if err := disable(seen); err == nil {
		t.Error("the other ApiKey was switched")
	} else if !errors.Is(err, keys.ErrReplaced) {
		t.Errorf("the error does not say so: %v", err)
	}
	var now v1alpha1.ApiKey
	if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(anew), &now); err != nil || now.Spec.State != v1alpha1.ApiKeyActive {
		t.Errorf("%+v, %v", now.Spec, err)
	}
	if err := disable(anew); err != nil {
		t.Error(err)
	}
}
