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
	s := newScene(t)
	r := s.start()
	acme := s.merchant("acme")
	key := s.key("till", acme)
	r.eventuallyStatus(key, http.StatusOK)

	acme.State = v1alpha1.MerchantSuspended
	s.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusForbidden)
	acme.State = v1alpha1.MerchantActive
	acme.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}
	s.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusUnauthorized)
	acme.IPAllowlist = append(acme.IPAllowlist, "127.0.0.1")
	acme.DisplayName = "Renamed"
	s.changeMerchant(acme)
	r.eventuallyStatus(key, http.StatusOK)
	if got := r.call(http.MethodGet, me, key, ""); got.body["merchant"].(map[string]any)["name"] != "Renamed" {
		t.Errorf("the profile is %s", got.raw)
	}

	second := s.key("second-till", acme)
	r.eventuallyStatus(second, http.StatusOK)
	if err := kube.CoreV1().Secrets(s.namespace).Delete(t.Context(), s.secretOf(key).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(key, http.StatusUnauthorized)
	r.call(http.MethodGet, me, second, "").want(t, http.StatusOK)
	name := published.MerchantName(acme.MerchantID)
	if err := kube.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventuallyStatus(second, http.StatusUnauthorized)
}

func TestOneUndecodableObjectStopsNoOther(t *testing.T) {
	s := newScene(t)
	acme, books := s.merchant("acme"), s.merchant("books")
	good, bad, ofBadMerchant := s.key("good", acme), s.key("bad", acme), s.key("of-bad-merchant", books)
	secret := s.secretOf(bad)
	intact := secret.DeepCopy()
	secret.Data["record.json"] = []byte(strings.Replace(string(secret.Data["record.json"]), `"version":1`, `"version":2`, 1))
	s.updateSecret(secret)
	r := s.start()
	configMap := s.configMap(books)
	configMap.Data = nil
	if _, err := kube.CoreV1().ConfigMaps(s.namespace).Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
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
		if got := strings.Count(s.log.String(), `"name":"`+name+`"`); got != 1 {
			t.Errorf("the log names %s %d times, want once", name, got)
		}
	}

	repaired := s.secretOf(bad)
	repaired.Data = intact.Data
	s.updateSecret(repaired)
	r.eventuallyStatus(bad, http.StatusOK)
	s.changeMerchant(books)
	r.eventuallyStatus(ofBadMerchant, http.StatusOK)
	if got := r.metric(`merchant_operator_directory_undecodable_objects{kind="key"}`); got != "0" {
		t.Errorf("%s undecodable keys are counted after the repair", got)
	}
}

func TestTheDataPlaneServesWithoutTheKubernetesAPI(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("acme"))
	r := s.start()
	r.proxy.Cut()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	if status := statusOf(r.ops + "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz %d", status)
	}
	late := s.key("late", s.merchant("late"))
	r.proxy.Mend()
	r.eventuallyStatus(late, http.StatusOK)
}
