package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// eventuallyStatus waits until merchant/me answers a key with the status.
func (r *replica) eventuallyStatus(key string, status int) {
	r.t.Helper()
	eventually(r.t, "the status is "+http.StatusText(status), func() bool {
		return r.call(http.MethodGet, me, key, "").status == status
	})
}

func TestWhatIsPublishedWhileReplicasRunTakesEffect(t *testing.T) {
	f := newFixture(t)
	r := f.start()
	acme := f.merchant("acme")
	key := f.key("till", acme)
	r.eventuallyStatus(key, http.StatusOK)

	acme.State = v1alpha1.MerchantSuspended
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusForbidden)
	acme.State = v1alpha1.MerchantActive
	acme.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusUnauthorized)
	acme.IPAllowlist = append(acme.IPAllowlist, "127.0.0.1")
	acme.DisplayName = "Renamed"
	f.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusOK)
	if got := r.call(http.MethodGet, me, key, ""); got.body["merchant"].(map[string]any)["name"] != "Renamed" {
		t.Errorf("the profile is %s", got.raw)
	}

	second := f.key("second-till", acme)
	r.eventuallyStatus(second, http.StatusOK)
	if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.secretOf(key).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(key, http.StatusUnauthorized)
	r.call(http.MethodGet, me, second, "").want(t, http.StatusOK)
	name := published.MerchantName(acme.MerchantID)
	if err := kube.CoreV1().ConfigMaps(f.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(second, http.StatusUnauthorized)
}

func TestOneUndecodableObjectStopsNoOther(t *testing.T) {
	f := newFixture(t)
	acme, books := f.merchant("acme"), f.merchant("books")
	good, bad, ofBadMerchant := f.key("good", acme), f.key("bad", acme), f.key("of-bad-merchant", books)
	secret := f.secretOf(bad)
	intact := secret.DeepCopy()
	secret.Data["record.json"] = []byte(strings.Replace(string(secret.Data["record.json"]), `"state":"Active"`, `"state":"Actve"`, 1))
	f.updateSecret(secret)
	r := f.start()
	configMap := f.configMap(books)
	configMap.Data = nil
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	r.call(http.MethodGet, me, bad, "").want(t, http.StatusUnauthorized)
	r.eventuallyStatus(ofBadMerchant, http.StatusUnauthorized)
	r.call(http.MethodGet, me, good, "").want(t, http.StatusOK)
	for _, kind := range []string{"key", "merchant"} {
		if got := r.metric(`merchant_operator_directory_undecodable_objects{kind="` + kind + `"}`); got != "1" {
			t.Errorf("%s undecodable %ss are counted, want 1", got, kind)
		}
	}
	for _, name := range []string{secret.Name, configMap.Name} {
		if got := strings.Count(f.log.String(), `"name":"`+name+`"`); got != 1 {
			t.Errorf("the log names %s %d times, want once", name, got)
		}
	}

	repaired := f.secretOf(bad)
	repaired.Data = intact.Data
	f.updateSecret(repaired)
	r.eventuallyStatus(bad, http.StatusOK)
	f.changeMerchant(books)
	r.eventuallyStatus(ofBadMerchant, http.StatusOK)
	if got := r.metric(`merchant_operator_directory_undecodable_objects{kind="key"}`); got != "0" {
		t.Errorf("%s undecodable keys are counted after the repair", got)
	}
}

func TestTheDataPlaneServesWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.Cut()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if status := statusOf(r.ops + "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d", status)
	}
	late := f.key("late", f.merchant("late"))
	r.proxy.Mend()
	r.eventuallyStatus(late, http.StatusOK)
}

// The next version has written records that these replicas cannot read whole, and was rolled back. Its envelopes refuse; a key that may
// be good is never 401.
func TestDirectory_RecordsOfTheNextVersion(t *testing.T) {
	f := newFixture(t)
	acme, books := f.merchant("acme"), f.merchant("books")
	keys := map[string]string{}
	for _, name := range []string{"active", "disabled", "revoked", "of suspended", "of active"} {
		merchant := acme
		if strings.HasPrefix(name, "of ") {
			merchant = books
		}
		keys[name] = f.key(strings.ReplaceAll(name, " ", "-"), merchant)
	}
	running := f.start()
	for _, key := range keys {
		running.eventuallyStatus(key, http.StatusOK)
	}
	later := func(name string, replace ...string) {
		t.Helper()
		secret := f.secretOf(keys[name])
		text := strings.NewReplacer(append(replace, `"version":1`, `"version":2`, `"lastRotation":`, `"rotations":[],"lastRotation":7,"was":`)...).Replace(string(secret.Data["record.json"]))
		secret.Data["record.json"] = []byte(text)
		f.updateSecret(secret)
	}
	later("active")
	later("disabled", `"state":"Active"`, `"state":"Disabled"`)
	later("revoked", `"state":"Active"`, `"state":"Active","revoked":true`)
	configMap := f.configMap(books)
	configMap.Data["merchant.json"] = strings.NewReplacer(`"version":1`, `"version":2`, `"state":"Active"`, `"state":"Suspended"`, `"rateLimit":`, `"rateLimit":9,"was":`).
		Replace(configMap.Data["merchant.json"])
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	running.eventuallyStatus(keys["disabled"], http.StatusUnauthorized)
	running.eventuallyStatus(keys["revoked"], http.StatusUnauthorized)
	running.eventuallyStatus(keys["of suspended"], http.StatusForbidden)
	running.call(http.MethodGet, me, keys["active"], "").want(t, http.StatusOK)
	restarted := f.start()
	restarted.call(http.MethodGet, me, keys["disabled"], "").want(t, http.StatusUnauthorized)
	restarted.call(http.MethodGet, me, keys["revoked"], "").want(t, http.StatusUnauthorized)
	for _, name := range []string{"active", "of active", "of suspended"} {
		got := restarted.call(http.MethodGet, me, keys[name], "")
		got.wantError(t, http.StatusServiceUnavailable, "temporarily unavailable; retry")
		if got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name)
		}
	}
	restarted.call(http.MethodGet, me, f.newKey(published.ID("active")).Reveal(), "").want(t, http.StatusUnauthorized)
}
